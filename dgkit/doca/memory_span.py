"""Memory of a map: its address, the objects that keep it valid, and whether it is writable."""

from __future__ import annotations

from ..buffers import flat_view
from ..errors import ExportError
from ..types import is_memory
from ..validate import whole
from .codes import Access
from .errors import NotPermitted

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

_WRITES = Access.LOCAL_READ_WRITE | Access.RDMA_WRITE | Access.RDMA_ATOMIC | Access.PCI_READ_WRITE


class MemorySpan:
    """Memory of `size` bytes at `address`, which stays valid until release().

    `view` is a memoryview of the bytes, or None if Python cannot access them. `fd` is a dma-buf
    that contains them, beginning at `offset`, or -1.
    """

    __slots__ = ("_dmabuf", "_keep", "address", "fd", "offset", "place", "readonly", "size", "view")

    def __init__(self, address: int, size: int, place: str, *held: Any) -> None:
        self.address, self.size, self.place = address, size, place
        self.view: memoryview | None = None
        self.readonly = False
        self.fd, self.offset = -1, 0
        self._keep = held
        self._dmabuf: Any = None

    def permissions(self, requested: Access | None) -> Access:
        """Return the permissions for a map. Raises NotPermitted for writes to read-only memory."""
        if requested is None:
            return Access.LOCAL_READ_ONLY if self.readonly else Access.LOCAL_READ_WRITE
        flags = Access(requested)
        if self.readonly and flags & _WRITES:
            raise NotPermitted(f"this memory is read-only, and {flags & _WRITES} would write to it")
        return flags

    def own_dmabuf(self, dmabuf: Any) -> None:
        """Take ownership of a dma-buf that contains these bytes."""
        self._dmabuf, self.fd, self.offset = dmabuf, dmabuf.fd, dmabuf.offset

    @property
    def owns_dmabuf(self) -> bool:
        """True if dgkit itself created the dma-buf, for memory that also has an address."""
        return self._dmabuf is not None

    def release(self) -> None:
        """Release the memory once the map is destroyed; it may then move or be freed."""
        dmabuf, self._dmabuf, self._keep, self.view = self._dmabuf, None, (), None
        if dmabuf is not None:
            dmabuf.close()


def span_of(memory: Any, ffi: Any, dmabuf: int | None, offset: int) -> MemorySpan:
    """Return the span of any kind of memory that Mmap accepts."""
    if isinstance(memory, tuple):
        if len(memory) != 2:
            raise TypeError(f"memory is {memory!r}; as a tuple it must be (address, size)")
        return _by_address(*memory, dmabuf=dmabuf, offset=offset)
    if dmabuf is not None:
        raise TypeError("with a dma-buf, memory is given as (address, size)")
    if getattr(memory, "gpu", None) is not None:
        return _on_gpu(memory)
    known = is_memory(memory)
    try:
        view = flat_view(memory.buffer if known else memory)
    except TypeError:
        raise TypeError(
            f"memory is of type {type(memory).__name__}; it must have a buffer (bytearray, NumPy "
            "array), be GPU memory (dgkit.wrap), or be (address, size)"
        ) from None
    pin = ffi.from_buffer("char[]", view)  # a bytearray cannot be resized while this is held
    address = int(ffi.cast("uintptr_t", pin))
    span = MemorySpan(address, view.nbytes, getattr(memory, "place", "host"), pin, memory)
    span.view, span.readonly = view, view.readonly
    return span


def _by_address(address: int, size: int, *, dmabuf: int | None, offset: int) -> MemorySpan:
    place = "an address" if dmabuf is None else "a dma-buf"
    span = MemorySpan(whole("address", address), whole("size", size, 1), place)
    if dmabuf is not None:
        span.fd, span.offset = whole("dmabuf", dmabuf), whole("dmabuf_offset", offset)
    return span


def _on_gpu(memory: Any) -> MemorySpan:
    """Return the span of GPU memory: with a dma-buf, or an address only (nvidia-peermem)."""
    gpu = memory.gpu
    span = MemorySpan(gpu.address, gpu.size, memory.place, memory, memory.keep)
    span.readonly = bool(getattr(memory, "readonly", False))
    try:
        span.own_dmabuf(memory.dmabuf())
    except ExportError:
        memory.synchronize()
    return span
