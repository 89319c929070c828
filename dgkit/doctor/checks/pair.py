"""A host and a DPU together."""
