"""GPU memory that the user already has: CuPy, PyTorch, JAX, Numba, anything that shows its address.

It is found by `__cuda_array_interface__` (versions 2 and 3), else by DLPack, which CuPy reads.
"""

from __future__ import annotations

import errno
import math
from typing import Any

from ..errors import Unsupported
from . import cuda
from .cuda_pointer import find
from .gpu_base import ALL, OnGpu
from .shape import as_shape

__all__ = ["ForeignGpuMemory"]


class ForeignGpuMemory(OnGpu):
    """An array's own bytes on a GPU, used in place. Made by `dgkit.wrap`, or by registering it.

    What another process can import is the block that the array lies in. Where that block has more
    in it than the array (CuPy's pool cuts arrays from large blocks), it takes `share_block=True`.
    `gpu.kind` says how it is imported, and `gpu.why` why it cannot be.
    """

    def __init__(self, obj: Any, *, share_block: bool = False, name: str | None = None) -> None:
        self._span = None
        self.kind = type(obj).__name__
        self.share_block, self.name = share_block, name
        self._object: Any = obj
        # A property may compute it, and PyTorch's raises what hasattr would pass on.
        if not hasattr(obj, "__cuda_array_interface__"):
            self._object = _from_dlpack(obj)
        shown = self._object.__cuda_array_interface__
        address, self.size = _bytes_of(shown, self.kind)
        self.readonly = bool(shown["data"][1])
        self._span, self._fd, self.managed = find(address, self.size, share_block)

    @property
    def keep(self) -> object:
        """Hold this while the address, the fd or the handle is in use."""
        return (self._object, self._fd)

    @property
    def array(self) -> Any:
        """The object as a `cupy.ndarray`, in place."""
        cupy = cuda.ready()
        _ = self.gpu  # ClosedError
        return cupy.asarray(self._object)

    def close(self) -> None:
        """Lets the object go. Regions over it stay valid and keep it."""
        self._span = self._object = self._fd = None

    def __enter__(self) -> ForeignGpuMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _producer(self) -> int:
        """The stream that the interface names now; where it names none (PyTorch), all.

        Version 3 says by None that there is nothing to wait for; to wait there as well is safe.
        """
        stream = self._object.__cuda_array_interface__.get("stream")
        return ALL if stream is None else int(stream)

    def _about(self) -> list[tuple[str, object]]:
        return [("Of", self.kind)]

    def __repr__(self) -> str:
        place = "" if self._span is None else f" on {self.place}"
        return f"<dgkit.ForeignGpuMemory {self.kind} of {self.size} bytes{place}>"


def _from_dlpack(obj: Any) -> Any:
    return cuda.ready().from_dlpack(obj)


def _bytes_of(shown: Any, kind: str) -> tuple[int, int]:
    """Address and bytes. ValueError for no bytes, Unsupported if they do not lie in one piece."""
    shape = as_shape(shown["shape"])
    item = int(shown["typestr"][2:])
    size = math.prod(shape) * item
    if size == 0:
        raise ValueError(f"{kind} has no bytes; a memory needs at least one")
    if shown.get("mask") is not None:
        raise Unsupported(errno.EOPNOTSUPP, f"{kind} is masked: register its data and its mask")
    strides = shown.get("strides")
    if strides is not None and not _in_one_piece(shape, tuple(strides), item):
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{kind} is not contiguous: register the whole array that it is a view of, "
            "and use write_2d or read_2d with its strides",
        )
    return int(shown["data"][0]), size


def _in_one_piece(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """In C's order or in Fortran's: the same bytes, as on the host."""
    for order in (1, -1):
        step = item
        for length, stride in list(zip(shape, strides, strict=True))[::-order]:
            if length != 1 and stride != step:
                break
            step *= length
        else:
            return True
    return False
