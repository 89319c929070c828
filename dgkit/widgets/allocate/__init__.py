"""Memory for a session: its form, what fills it, where it may lie."""

from .allocate import AllocatePanel

__all__ = ["AllocatePanel"]
