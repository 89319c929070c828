# SPDX-License-Identifier: Apache-2.0
"""Base of all GPU memory."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ClosedError
from ..types import GpuSpan
from . import libcuda
from .dmabuf import DmaBuf, PeerMem, dmabuf_or_peermem, export_dmabuf

ALL_STREAMS = -1  # every stream of the context


class GpuBase:
    """Memory on a GPU; `gpu` says where it is and how another process can import it."""

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
        """`cuda:0`, `cuda:1`, ..."""
        return f"cuda:{self.gpu.gpu}"

    @property
    def gpu(self) -> GpuSpan:
        """Address range of the bytes. Raises ClosedError after close()."""
        span = self._span  # read once: another thread may close the memory
        if span is None:
            raise ClosedError(f"{self!r} is closed")
        return span

    @property
    def keep(self) -> object:
        """Object to hold while the address, the fd or the handle is in use."""
        return None

    @property
    def closed(self) -> bool:
        """True if the memory is closed."""
        return self._span is None

    def synchronize(self, stream: Any = None) -> None:
        """Synchronize with the producing stream; other threads run meanwhile.

        Args:
            stream: CUDA stream of CuPy, PyTorch, Numba or cuda.core, or its address; None for the
                stream that the memory itself names.
        """
        synchronize_stream(self.gpu.gpu, self._producer() if stream is None else stream)

    def _producer(self) -> Any:
        """Return the producing stream; None for CuPy's current one."""
        return None

    def dmabuf(self) -> DmaBuf:
        """Synchronize, then return a dma-buf of the bytes for another device; see `DmaBuf`."""
        self.synchronize()
        return export_dmabuf(self.gpu, managed=self.managed, share_block=self.share_block)

    def dmabuf_or_peermem(self) -> DmaBuf | PeerMem:
        """Synchronize, then return a dma-buf, else the address for nvidia-peermem.

        Raises:
            ExportError: The memory supports neither.
        """
        self.synchronize()
        return dmabuf_or_peermem(self.gpu, managed=self.managed, share_block=self.share_block)

    def cpu_view(self) -> memoryview:
        """Return the bytes mapped for the CPU, over PCIe: suited to a flag, slow for bulk data.

        The view stays valid after close(). It is a mapping of a dma-buf if the driver supports it,
        else one of GDRCopy.

        Raises:
            Unsupported: Neither is available; the message says what to install.
        """
        from .cpu_mapping import cpu_view

        self.synchronize()
        options = {"managed": self.managed, "share_block": self.share_block}
        return cpu_view(self.gpu, self.keep, **options)

    def _rows(self) -> list[tuple[str, object]]:
        span = self.gpu
        shared = {"vmm": "by its POSIX fd", "ipc": "by a CUDA IPC handle", "none": span.why}
        block = f"{span.block} bytes, from byte {span.offset} on" if span.block else "unknown"
        rows: list[tuple[str, object]] = [("Name", self.name)] if self.name else []
        rows += [("Size", f"{self.size} bytes"), *self._about(), ("Place", self.place)]
        rows += [("Chosen by on='auto'", self.chosen)] if self.chosen else []
        return [*rows, ("Allocation", block), ("Imported", shared[span.kind])]

    def _about(self) -> list[tuple[str, object]]:
        """Return the rows that this kind of memory adds to the HTML card."""
        return []

    def _repr_html_(self) -> str:
        from ..html_cards import card

        return card("GPU memory (closed)", []) if self.closed else card("GPU memory", self._rows())


def synchronize_stream(gpu: int, stream: Any = None) -> None:
    """Synchronize with a stream of a GPU.

    Args:
        gpu: Index of the GPU.
        stream: Stream, its address, or None for CuPy's current one, or for all streams if CuPy is
            not loaded.
    """
    cupy = sys.modules.get("cupy")
    if stream is None:
        stream = ALL_STREAMS if cupy is None else cupy.cuda.get_current_stream(gpu)
    address = stream_address(stream)
    with libcuda.primary_context(gpu):
        if address == ALL_STREAMS:
            libcuda.call("cuCtxSynchronize")
        else:
            libcuda.call("cuStreamSynchronize", libcuda.driver().CUstream(address))


def stream_address(stream: Any) -> int:
    """Return the address of a CUDA stream. Raises TypeError for any other object."""
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
