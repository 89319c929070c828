"""The BlueField: generation, mode, representors, the way to its Arm cores."""
