"""Where demo puts bytes and looks at them: the array of a region, on the host or on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session import SessionRegion

__all__ = ["CHUNK", "Target", "target"]

CHUNK = 4 << 20  # bytes that are handled at a time


class Target(ABC):
    """`size` bytes, which are filled and read a piece of at most CHUNK bytes at a time."""

    size: int

    @abstractmethod
    def room(self, at: int, count: int) -> memoryview:
        """Where to put the piece; filled() says that it is there."""

    @abstractmethod
    def filled(self, at: int, count: int) -> None:
        """The first `count` bytes of the room are what belongs at `at`."""

    @abstractmethod
    def piece(self, at: int, count: int) -> memoryview:
        """The bytes there."""

    def put(self, at: int, data: bytes | memoryview) -> None:
        """Puts a piece there."""
        self.room(at, len(data))[:] = data
        self.filled(at, len(data))


class HostTarget(Target):
    """Bytes of the host, in place."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.size = len(view)

    def room(self, at: int, count: int) -> memoryview:
        """The bytes themselves."""
        return self._view[at : at + count]

    def filled(self, at: int, count: int) -> None:
        """They are there already."""

    piece = room


class GpuTarget(Target):
    """Bytes of a CuPy array, which go to the GPU and come from it by CuPy, not by this DPU."""

    def __init__(self, array: Any) -> None:
        import numpy as np

        self._array = array
        self.size = array.nbytes
        self._staging = np.empty(min(CHUNK, self.size), dtype="u1")

    def room(self, _at: int, count: int) -> memoryview:
        """Memory of the host for one piece."""
        return self._staging.data[:count]

    def filled(self, at: int, count: int) -> None:
        """Sends the piece to the GPU."""
        with self._array.device:
            self._array[at : at + count].set(self._staging[:count])

    def piece(self, at: int, count: int) -> memoryview:
        """Brings the piece from the GPU."""
        with self._array.device:
            view: memoryview = self._array[at : at + count].get().data
        return view


def target(region: SessionRegion) -> Target:
    """The bytes of a region of this process, as flat u1."""
    array: Any = region.array
    return GpuTarget(array) if region.place.startswith("cuda:") else HostTarget(array.data)
