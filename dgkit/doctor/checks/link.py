"""The speed and width of PCIe links, now and at most."""
