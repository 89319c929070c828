"""Limits of the system: locked memory, page size, open files."""
