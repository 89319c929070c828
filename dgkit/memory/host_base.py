"""Base of all host memory: a buffer and close()."""

from __future__ import annotations

from ..errors import ClosedError

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import TypeVar

    Self = TypeVar("Self", bound="HostBase")

__all__ = ["HostBase"]


class HostBase:
    """Bytes that the CPU reads and writes. `_buffer` is None once closed."""

    place = "host"
    fd_offset = 0
    gpu = None
    _buffer: memoryview | None

    @property
    def closed(self) -> bool:
        """True if the memory is closed."""
        return self._buffer is None

    @property
    def buffer(self) -> memoryview:
        """All bytes, flat."""
        buffer = self._buffer  # once: another thread may close the memory
        if buffer is None:
            raise ClosedError(f"{self!r} is closed")
        return buffer

    def close(self) -> None:
        """Release the bytes; regions and arrays over them keep them. Idempotent."""
        self._buffer = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
