"""GDRCopy: GPU memory for the CPU."""
