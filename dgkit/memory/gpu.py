"""Memory that dgkit allocates on a GPU: a CuPy array over CUDA virtual memory."""

from __future__ import annotations

import errno
import os
from typing import Any

from ..errors import DeviceUnavailable
from ..types import GpuSpan
from . import cuda
from .gpu_base import OnGpu
from .gpu_info import uuid_of
from .shape import total_size

__all__ = ["GpuMemory"]


class GpuMemory(OnGpu):
    """Memory on a GPU that other processes can import. Made by `dgkit.empty(on="gpu")`.

    `array` is a CuPy array over it, and works with all that takes one. `size` bytes, zero at first,
    in a block of whole granules (2 MiB): an importer gets the block, and nothing else lies in it.
    Closing gives the bytes back once no region and no array uses them.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, gpu: int | None, name: str | None
    ) -> None:
        self._span = None
        self._block: Any = None
        self.shape, self.dtype, self.name = shape, dtype, name
        self.size = total_size(shape, dtype)
        cupy = cuda.ready()
        number = _number(gpu)
        with cuda.current(number):  # so that no context is an error of dgkit's, and not of CuPy's
            uuid = uuid_of(number)
        cupy.ndarray((0,), dtype)  # CuPy's ValueError for a dtype that it does not have
        from .vmm import Block

        self._block = block = Block(number, self.size)
        self._span = GpuSpan(
            address=block.address,
            size=self.size,
            gpu=number,
            uuid=uuid,
            kind="vmm",
            fd=block.fd,
            block=block.size,
        )

    @property
    def keep(self) -> object:
        """Hold this while the address or the fd is in use."""
        return self._block

    @property
    def array(self) -> Any:
        """The bytes as a `cupy.ndarray` of `shape` and `dtype`; it keeps them."""
        import cupy

        span = self.gpu
        block = cupy.cuda.UnownedMemory(span.address, span.block, self._block, span.gpu)
        start = cupy.cuda.MemoryPointer(block, 0)
        return cupy.ndarray(self.shape, self.dtype, memptr=start)

    def close(self) -> None:
        """Gives the memory up. Regions and arrays over it stay valid and keep the bytes."""
        self._span = self._block = None

    def __enter__(self) -> GpuMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _about(self) -> list[tuple[str, object]]:
        return [("Shape", f"{self.shape} of {self.dtype}")]

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        place = "" if self._span is None else f" on {self.place}"
        chosen = f"; on='auto' chose {self.chosen}" if self.chosen else ""
        what = f"{self.shape} {self.dtype} = {self.size} bytes"
        return f"<dgkit.GpuMemory{name} {what}{place}{chosen}>"


def _number(gpu: int | None) -> int:
    """The GPU that was named, else the one whose context is current, else the first."""
    if gpu is None:
        return cuda.here()
    found = cuda.count()
    if gpu < found:
        return gpu
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    hides = "" if seen is None else f"; CUDA_VISIBLE_DEVICES is {seen!r}"
    has = "1 GPU, cuda:0" if found == 1 else f"{found} GPUs, cuda:0 to cuda:{found - 1}"
    text = f"there is no cuda:{gpu}: this process has {has}{hides}"
    raise DeviceUnavailable(errno.ENODEV, text, check="gpu-present")
