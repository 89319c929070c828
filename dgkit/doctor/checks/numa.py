"""NUMA nodes and the CPUs near a device."""
