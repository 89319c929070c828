"""A user's host memory: bytearray, NumPy, mmap, array, any object with a buffer."""

from __future__ import annotations

from ..buffers import flat_view
from .host_base import HostBase

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

__all__ = ["ForeignMemory"]


class ForeignMemory(HostBase):
    """Bytes of a user's object, in place. Created by `dgkit.wrap`, or by registering the object.

    Other processes access the bytes through this one: a thread of it copies for them, or they copy
    themselves where the system lets them open this process (`share_process` requests that).
    """

    fd = -1
    readonly_export = False
    keep: object = None

    def __init__(self, obj: Any, *, share_process: bool = False, name: str | None = None) -> None:
        self._buffer = view = flat_view(obj)
        self.size = view.nbytes
        self.share_process = share_process
        self.name = name
        self.kind = type(obj).__name__
        self.may_fault: bool | None = None  # whether a file backs the bytes; set by `dma`

    @property
    def readonly(self) -> bool:
        """True if the object forbids writing."""
        return self.buffer.readonly

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The bytes as a flat NumPy array of u1. Imports NumPy."""
        import numpy as np

        return np.frombuffer(self.buffer, dtype="u1")

    def __repr__(self) -> str:
        return f"<dgkit.ForeignMemory {self.kind} of {self.size} bytes>"
