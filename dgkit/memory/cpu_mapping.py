"""GPU memory mapped for the CPU: through a dma-buf if the driver can, else by GDRCopy."""

from __future__ import annotations

import errno

from ..errors import ExportError, Unsupported
from . import cuda
from .dmabuf import export_dmabuf
from .gdrcopy import GdrMapping, GdrUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import GpuSpan


def cpu_view(span: GpuSpan, keep: object, *, managed: bool, share_block: bool) -> memoryview:
    """Return the bytes of GPU memory in place.

    Args:
        span: Where the bytes are.
        keep: Object that the view keeps alive.
        managed: The bytes are CUDA managed memory.
        share_block: The view may include other parts of the allocation.

    Raises:
        Unsupported: Neither method works; the message says why.
    """
    view, why_no_map = _by_dmabuf(span, keep, managed, share_block)
    if view is not None:
        return view
    try:
        with cuda.primary_context(span.gpu):
            return GdrMapping(span.address, span.size, keep).view()
    except GdrUnavailable as why:
        raise Unsupported(
            errno.EOPNOTSUPP,
            "the CPU cannot access this GPU memory in place. By a dma-buf: "
            f"{why_no_map}. By GDRCopy: {why}; install it from https://github.com/NVIDIA/gdrcopy "
            "(GDRCOPY_PATH_L is the folder of its library). Or copy: array.get(), or a transfer",
        ) from None


def _by_dmabuf(
    span: GpuSpan, keep: object, managed: bool, share_block: bool
) -> tuple[memoryview | None, str]:
    """Return the mapped dma-buf, or None and the reason.

    The mapping is attempted, since drivers before CUDA 13.3 do not report support for it.
    """
    if cuda.attribute(span.gpu, "DMA_BUF_MMAP_SUPPORTED") == 0:
        return None, "the driver does not map dma-bufs"
    try:
        with export_dmabuf(span, managed=managed, share_block=share_block) as shared:
            mapped = shared.map(keep)
            return memoryview(mapped)[shared.offset : shared.offset + shared.size], ""
    except ExportError as why:
        return None, why.words
    except OSError as why:
        return None, f"the driver does not map dma-bufs ({why.strerror or why})"
