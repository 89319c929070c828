"""Machines that have no GPUDirect: DGX Spark and others."""
