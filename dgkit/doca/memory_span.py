"""What a map is told of memory: where it lies, who keeps it there, whether it may be written."""

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

__all__ = ["Span", "span_of"]

_WRITES = Access.LOCAL_READ_WRITE | Access.RDMA_WRITE | Access.RDMA_ATOMIC | Access.PCI_READ_WRITE


class Span:
    """`size` bytes at `address`, held where they are until `let_go()`.

    `view` is its bytes, None where Python cannot see them. `fd` is a dma-buf that they lie in from
    byte `offset` on, or -1.
    """

    __slots__ = ("_file", "_held", "address", "fd", "offset", "place", "readonly", "size", "view")

    def __init__(self, address: int, size: int, place: str, *held: Any) -> None:
        self.address, self.size, self.place = address, size, place
        self.view: memoryview | None = None
        self.readonly = False
        self.fd, self.offset = -1, 0
        self._held = held
        self._file: Any = None

    def permissions(self, asked: Access | None) -> Access:
        """What a map of it allows. NotPermitted if that would write to what is read-only."""
        if asked is None:
            return Access.LOCAL_READ_ONLY if self.readonly else Access.LOCAL_READ_WRITE
        flags = Access(asked)
        if self.readonly and flags & _WRITES:
            raise NotPermitted(f"this memory is read-only, and {flags & _WRITES} would write to it")
        return flags

    def lend(self, file: Any) -> None:
        """Takes a dma-buf of these bytes, which is closed with it."""
        self._file, self.fd, self.offset = file, file.fd, file.offset

    @property
    def lent(self) -> bool:
        """Whether the dma-buf was made here, of memory that has an address, too."""
        return self._file is not None

    def let_go(self) -> None:
        """After the map: what lies here may move, shrink or vanish."""
        file, self._file, self._held, self.view = self._file, None, (), None
        if file is not None:
            file.close()


def span_of(memory: Any, ffi: Any, dmabuf: int | None, offset: int) -> Span:
    """The span of any kind of memory that `Mmap` takes."""
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
            f"memory is of type {type(memory).__name__}; it must have a buffer, as a bytearray or "
            "a NumPy array has, or be memory of a GPU, or (address, size)"
        ) from None
    pin = ffi.from_buffer("char[]", view)  # a bytearray cannot be resized while this is held
    address = int(ffi.cast("uintptr_t", pin))
    span = Span(address, view.nbytes, getattr(memory, "place", "host"), pin, memory)
    span.view, span.readonly = view, view.readonly
    return span


def _by_address(address: int, size: int, *, dmabuf: int | None, offset: int) -> Span:
    place = "an address" if dmabuf is None else "a dma-buf"
    span = Span(whole("address", address), whole("size", size, 1), place)
    if dmabuf is not None:
        span.fd, span.offset = whole("dmabuf", dmabuf), whole("dmabuf_offset", offset)
    return span


def _on_gpu(memory: Any) -> Span:
    """By a dma-buf where the driver gives one, else by its address, for nvidia-peermem."""
    gpu = memory.gpu
    span = Span(gpu.address, gpu.size, memory.place, memory, memory.keep)
    span.readonly = bool(getattr(memory, "readonly", False))
    try:
        span.lend(memory.dmabuf())
    except ExportError:
        memory.synchronize()
    return span
