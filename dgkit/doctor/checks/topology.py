"""Where GPUs and NICs hang in the PCIe tree, and how near to each other."""
