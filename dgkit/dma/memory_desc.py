"""Memory as the C core describes it (`dg_memory`): ranges of buffers and GPU memory."""

from __future__ import annotations

from ..errors import BoundsError
from ..validate import whole
from ._ffi import ffi

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from ..types import GpuSpan
    from ._ffi import native

__all__ = ["READONLY", "described_gpu", "part"]

READONLY = 1  # DG_MEMORY_READONLY
_KINDS = {"vmm": 1, "ipc": 2, "none": 3}  # enum dg_memory_kind


def part(total: int, offset: int, size: int | None) -> tuple[int, int]:
    """Return start and length of a range of `total` bytes; BoundsError if out of bounds."""
    start = whole("offset", offset)
    length = total - start if size is None else whole("size", size, 1)
    if length < 1 or start + length > total:
        raise BoundsError(f"offset {start} + size {length} leaves the memory's {total} bytes")
    return start, length


def described_gpu(memory: Any, span: GpuSpan, offset: int, size: int | None) -> native.dg_memory:
    """Return the `dg_memory` of a range of GPU memory."""
    start, length = part(span.size, offset, size)
    raw = ffi.new("dg_memory *")
    raw.addr = ffi.cast("char *", span.address) + start
    raw.size = length
    raw.kind = _KINDS[span.kind]
    raw.flags = READONLY if getattr(memory, "readonly", False) else 0
    raw.fd = span.fd
    raw.fd_offset = span.offset + start
    raw.block = span.block
    raw.uuid = span.uuid
    raw.handle = span.handle.ljust(64, b"\0")
    return raw
