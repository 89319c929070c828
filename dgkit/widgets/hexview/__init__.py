"""The bytes of a region: how they are got, what changed, search, edits, and their grid."""

from .hexview import HexView

__all__ = ["HexView"]
