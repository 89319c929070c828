"""What all memory on a GPU has in common, whoever made it."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ClosedError
from ..types import GpuSpan
from . import cuda
from .dmabuf import DmaBuf, PeerMem, dmabuf, dmabuf_or_peermem

__all__ = ["ALL", "OnGpu", "stream_address", "wait_for"]

ALL = -1  # every stream of the context


class OnGpu:
    """Memory on a GPU: `gpu` says where, and how another process can import it."""

    fd = -1
    fd_offset = 0
    share_process = False
    readonly_export = False
    readonly = False
    share_block = False
    managed = False
    chosen = ""
    name: str | None = None
    size: int
    _span: GpuSpan | None

    @property
    def place(self) -> str:
        """`cuda:0`."""
        return f"cuda:{self.gpu.gpu}"

    @property
    def gpu(self) -> GpuSpan:
        """Where the bytes lie. ClosedError after close()."""
        if self._span is None:
            raise ClosedError(f"{self!r} is closed")
        return self._span

    @property
    def keep(self) -> object:
        """Hold this while the address, the fd or the handle is in use."""
        return None

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._span is None

    def synchronize(self, stream: Any = None) -> None:
        """Waits until what the producing stream was given is done: then the bytes are there.

        `stream` is a CUDA stream of CuPy, PyTorch, Numba or cuda.core, or its address; None is the
        stream that this memory's own kind names. Other threads go on while it waits.
        """
        wait_for(self.gpu.gpu, self._producer() if stream is None else stream)

    def _producer(self) -> Any:
        """The producing stream; None for CuPy's current one."""
        return None

    def dmabuf(self) -> DmaBuf:
        """A dma-buf of the bytes, for a device that reaches them itself: `DmaBuf` says how."""
        self.synchronize()
        return dmabuf(self)

    def dmabuf_or_peermem(self) -> DmaBuf | PeerMem:
        """A dma-buf; where there is none the older way, by nvidia-peermem, and whether it is there.

        ExportError for memory that goes neither way.
        """
        self.synchronize()
        return dmabuf_or_peermem(self)

    def cpu_view(self) -> memoryview:
        """The bytes for the CPU, through the PCIe bus: good for a flag, slow for much.

        By a dma-buf where the driver maps one, else by GDRCopy. Unsupported if neither is here:
        the text says what to install. The view stays valid after close().
        """
        from .cpu_mapping import cpu_view

        return cpu_view(self)

    def _rows(self) -> list[tuple[str, object]]:
        span = self.gpu
        shared = {"vmm": "by its POSIX fd", "ipc": "by a CUDA IPC handle", "none": span.why}
        block = f"{span.block} bytes, from byte {span.offset} of it" if span.block else "unknown"
        rows: list[tuple[str, object]] = [("Name", self.name)] if self.name else []
        rows += [("Size", f"{self.size} bytes"), *self._about(), ("Place", self.place)]
        rows += [("Chosen by on='auto'", self.chosen)] if self.chosen else []
        return [*rows, ("Its block", block), ("Importers reach it", shared[span.kind])]

    def _about(self) -> list[tuple[str, object]]:
        """What only memory of its kind has to show."""
        return []

    def _repr_html_(self) -> str:
        from ..html_cards import card

        return card("GPU memory (closed)", []) if self.closed else card("GPU memory", self._rows())


def wait_for(gpu: int, stream: Any = None) -> None:
    """Waits for a stream of a GPU; None is CuPy's current one, or ALL where CuPy is not loaded."""
    cupy = sys.modules.get("cupy")
    if stream is None:
        stream = ALL if cupy is None else cupy.cuda.get_current_stream(gpu)
    address = stream_address(stream)
    with cuda.current(gpu):
        if address == ALL:
            cuda.call("cuCtxSynchronize")
        else:
            cuda.call("cuStreamSynchronize", cuda.driver().CUstream(address))


def stream_address(stream: Any) -> int:
    """The address of a CUDA stream. TypeError if it is none."""
    if hasattr(stream, "__cuda_stream__"):  # cuda.core's protocol: (version, address)
        found = stream.__cuda_stream__
        return int((found() if callable(found) else found)[1])
    for attribute in ("ptr", "cuda_stream", "handle"):  # CuPy, PyTorch, Numba
        address = getattr(stream, attribute, None)
        if address is not None:
            return int(getattr(address, "value", address) or 0)
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise TypeError(f"stream is {stream!r}; it must be a CUDA stream, or its address")
