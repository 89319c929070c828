"""GPU memory for the CPU: a dma-buf that the driver maps, else GDRCopy."""

from __future__ import annotations

import errno
from typing import Any

from ..errors import ExportError, Unsupported
from . import cuda
from .dmabuf import dmabuf
from .gdrcopy import Mapping, NotHere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .gpu_base import OnGpu

__all__ = ["cpu_view"]


def cpu_view(memory: OnGpu) -> memoryview:
    """The bytes of GPU memory, in place. Unsupported names both ways and why each is closed."""
    memory.synchronize()
    keep = memory.keep
    view, why_no_map = _by_dmabuf(memory, keep)
    if view is not None:
        return view
    try:
        with cuda.current(memory.gpu.gpu):
            return Mapping(memory.gpu.address, memory.size, keep).view()
    except NotHere as why:
        raise Unsupported(
            errno.EOPNOTSUPP,
            "the CPU cannot reach this memory in place. By a dma-buf: "
            f"{why_no_map}. By GDRCopy: {why}; install it from https://github.com/NVIDIA/gdrcopy "
            "(GDRCOPY_PATH_L names the folder of its library). Or copy: array.get(), or a transfer",
        ) from None


def _by_dmabuf(memory: OnGpu, keep: Any) -> tuple[memoryview | None, str]:
    """By mapping a dma-buf, which is tried: drivers before CUDA 13.3 do not say that they can."""
    if cuda.attribute(memory.gpu.gpu, "DMA_BUF_MMAP_SUPPORTED") == 0:
        return None, "the driver maps none"
    try:
        with dmabuf(memory) as shared:
            mapped = shared.map(keep)
            return memoryview(mapped)[shared.offset : shared.offset + shared.size], ""
    except ExportError as why:
        return None, why.words
    except OSError as why:
        return None, f"the driver maps none ({why.strerror or why})"
