"""What all memory of the host has: a buffer, and an end."""

from __future__ import annotations

from ..errors import ClosedError

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import TypeVar

    Self = TypeVar("Self", bound="OnHost")

__all__ = ["OnHost"]


class OnHost:
    """Bytes that the CPU reads and writes. `_buffer` is None once it is closed."""

    place = "host"
    fd_offset = 0
    gpu = None
    _buffer: memoryview | None

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._buffer is None

    @property
    def buffer(self) -> memoryview:
        """All bytes, flat."""
        if self._buffer is None:
            raise ClosedError(f"{self!r} is closed")
        return self._buffer

    def close(self) -> None:
        """Gives the bytes up. Regions and arrays over them stay valid and keep them."""
        self._buffer = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
