"""Access to a region's bytes, in host or GPU memory, for demo to fill and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session import SessionRegion

CHUNK = 4 << 20  # bytes


class Target(ABC):
    """Bytes of a region, `size` in all, filled and read in pieces of at most CHUNK bytes."""

    size: int

    @abstractmethod
    def buffer(self, at: int, count: int) -> memoryview:
        """Return a buffer for `count` bytes at offset `at`; call filled() after writing to it."""

    @abstractmethod
    def filled(self, at: int, count: int) -> None:
        """Store the first `count` bytes of the buffer at offset `at`."""

    @abstractmethod
    def piece(self, at: int, count: int) -> memoryview:
        """Return `count` bytes at offset `at`."""

    def put(self, at: int, data: bytes | memoryview) -> None:
        """Store a piece at offset `at`."""
        self.buffer(at, len(data))[:] = data
        self.filled(at, len(data))


class HostTarget(Target):
    """Host memory, accessed in place."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.size = len(view)

    def buffer(self, at: int, count: int) -> memoryview:
        """Return the region's bytes."""
        return self._view[at : at + count]

    def filled(self, at: int, count: int) -> None:
        """Do nothing: the buffer is the region itself."""

    piece = buffer


class GpuTarget(Target):
    """CuPy array, copied to and from the GPU by CuPy rather than by the DPU."""

    def __init__(self, array: Any) -> None:
        import numpy as np

        self._array = array
        self.size = array.nbytes
        self._staging = np.empty(min(CHUNK, self.size), dtype="u1")

    def buffer(self, _at: int, count: int) -> memoryview:
        """Return a host buffer for one piece."""
        return self._staging.data[:count]

    def filled(self, at: int, count: int) -> None:
        """Copy the piece to the GPU."""
        with self._array.device:
            self._array[at : at + count].set(self._staging[:count])

    def piece(self, at: int, count: int) -> memoryview:
        """Copy the piece from the GPU."""
        with self._array.device:
            view: memoryview = self._array[at : at + count].get().data
        return view


def target_of(region: SessionRegion) -> Target:
    """Return the bytes of a region of this process."""
    array: Any = region.array
    return GpuTarget(array) if region.place.startswith("cuda:") else HostTarget(array.data)
