"""Reads and writes: the form, the orders made of it, how they run, what came of each."""

from .transfer import TransferPanel

__all__ = ["TransferPanel"]
