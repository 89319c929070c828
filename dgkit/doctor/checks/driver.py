"""The NVIDIA driver: version, open or closed kernel modules, persistence mode, registry keys."""
