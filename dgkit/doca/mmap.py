# SPDX-License-Identifier: Apache-2.0
"""Memory maps: memory of this process, or exported by another process, that devices can access."""

from __future__ import annotations

from collections.abc import Sequence

from ..buffers import flat_view
from ..errors import ExportError
from ..types import is_memory
from ..validate import whole
from ._library import CONTROL, library
from .codes import Access
from .doca_device import Device
from .doca_errors import DocaError, NotPermitted, NotSupported
from .handle import Handle

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


class Mmap(Handle):
    """Memory map (`doca_mmap`): created with its devices, memory and permissions, then started.

    `size` is the number of bytes; `address` is their address in the process that owns them.

    Args:
        memory: Object with a buffer (bytearray, NumPy array, `dgkit.empty`), GPU memory
            (`dgkit.wrap`), or `(address, size)`. The map keeps objects of the first two kinds valid
            until it is closed (a bytearray cannot be resized until then). With `(address, size)`,
            the caller must keep the memory valid.
        devices: One Device or several.
        permissions: Permissions of the map; by default those that this process has for `memory`.
        dmabuf: File descriptor of a dma-buf that contains the memory, for `(address, size)`.
        dmabuf_offset: Offset of the memory in the dma-buf, in bytes.
        start: Start the map now.

    Raises:
        NotPermitted: `permissions` allow writes, and the memory is read-only.
    """

    __slots__ = ("_permissions", "_span", "_started", "address", "devices", "imported", "size")
    _name = "map"
    _order = 4
    _span: MemorySpan | None
    _permissions: Access | None

    def __init__(
        self,
        memory: Any,
        devices: Device | Sequence[Device],
        *,
        permissions: Access | None = None,
        dmabuf: int | None = None,
        dmabuf_offset: int = 0,
        start: bool = True,
    ) -> None:
        super().__init__()
        self.devices = (devices,) if isinstance(devices, Device) else tuple(devices)
        if not self.devices or not all(isinstance(device, Device) for device in self.devices):
            raise TypeError(f"devices is {devices!r}; it must be one or more Device")
        self.imported = self._started = False
        lib = library()
        self._span = span = span_of(memory, lib.ffi, dmabuf, dmabuf_offset)
        self.address, self.size = span.address, span.size
        try:
            self._permissions = span.permissions(permissions)
            self._make(span)
            if start:
                self.start()
        except BaseException:
            if self._h is None:
                span.release()
            else:
                self.close()
            raise

    def _make(self, span: MemorySpan) -> None:
        """Create the map and set its devices, permissions and range."""
        lib = library()
        with CONTROL:
            self._opened(lib.get("doca_mmap_create", "struct doca_mmap **"), *self.devices)
            for device in self.devices:
                self._call("doca_mmap_add_dev", device._handle())
            self._call("doca_mmap_set_permissions", int(self._permissions or 0))
            self._set_range(span, lib.ffi.cast("void *", span.address))

    def _set_range(self, span: MemorySpan, address: Any) -> None:
        """Set the range, from the dma-buf if there is one, otherwise from the address.

        If DOCA refuses the dma-buf of GPU memory, try its address, for nvidia-peermem.
        """
        if span.fd >= 0:
            try:
                name = "doca_mmap_set_dmabuf_memrange"
                return self._call(name, span.fd, address, span.offset, span.size)
            except DocaError:
                if not span.owns_dmabuf:
                    raise
        return self._call("doca_mmap_set_memrange", address, span.size)

    @classmethod
    def from_export(cls, descriptor: bytes, device: Device) -> Mmap:
        """Return a started map of another process's memory.

        The device has the access that the exporter permits; this process cannot access the memory.

        Args:
            descriptor: Return value of the exporter's `export_pci()`.
            device: Device that accesses the memory.

        Raises:
            InvalidValue: The descriptor is malformed.
        """
        Device._expect("device", device)
        mmap = cls.__new__(cls)
        Handle.__init__(mmap)
        mmap.devices, mmap.imported, mmap._started = (device,), True, True
        mmap._span = mmap._permissions = None
        lib, raw = library(), bytes(memoryview(descriptor))
        with CONTROL:
            name, kind = "doca_mmap_create_from_export", "struct doca_mmap **"
            dev = device._handle()
            mmap._opened(lib.get(name, kind, lib.ffi.NULL, raw, len(raw), dev), device)
            mmap.address, mmap.size = mmap._range()
        return mmap

    def start(self) -> None:
        """Make the memory accessible to the devices. Later changes raise BadState."""
        self._call("doca_mmap_start")
        self._started = True

    def stop(self) -> None:
        """Undo `start()`. Raises NotPermitted while buffers of the map exist."""
        self._call("doca_mmap_stop")
        self._started = False

    @property
    def started(self) -> bool:
        """True if the map is started."""
        return self._h is not None and self._started

    @property
    def permissions(self) -> Access | None:
        """Permissions, which can be set before the start; None (unknown) if imported."""
        return self._permissions

    @permissions.setter
    def permissions(self, flags: Access) -> None:
        self._handle()
        if self._span is not None:
            flags = self._span.permissions(flags)
        self._call("doca_mmap_set_permissions", int(flags))
        self._permissions = Access(flags)

    def export_pci(self, device: Device | None = None) -> bytes:
        """Return a descriptor of at most 512 bytes for a process on the DPU to map the memory.

        Closing the map revokes that process's access.

        Args:
            device: Device whose DPU gets the descriptor; None for the map's first device.

        Raises:
            NotPermitted: The permissions include neither PCI_READ_ONLY nor PCI_READ_WRITE.
        """
        lib = library()
        with CONTROL:
            out, length = lib.ffi.new("const void **"), lib.ffi.new("size_t *")
            dev = (device or self.devices[0])._handle()
            self._call("doca_mmap_export_pci", dev, out, length)
            return bytes(lib.ffi.buffer(out[0], length[0]))

    @property
    def exported(self) -> bool:
        """True if the map was exported."""
        return bool(self._get("doca_mmap_get_exported", "uint8_t *"))

    @property
    def bufs(self) -> int:
        """Number of buffers of the map."""
        return int(self._get("doca_mmap_get_num_bufs", "uint32_t *"))

    def _range(self) -> tuple[int, int]:
        lib = library()
        address, size = lib.ffi.new("void **"), lib.ffi.new("size_t *")
        self._call("doca_mmap_get_memrange", address, size)
        return int(lib.ffi.cast("uintptr_t", address[0])), int(size[0])

    @property
    def place(self) -> str:
        """Location of the memory: `host`, `cuda:0`, `another process`."""
        return "another process" if self._span is None else self._span.place

    @property
    def _place_text(self) -> str:
        """Location as text, with the machine's side: on the DPU, host memory is the DPU's own."""
        return "this process" if self.place == "host" else self.place

    def _view(self) -> memoryview:
        """Return a view of the bytes. Raises NotSupported if they are not in this process."""
        self._handle()
        if self._span is None or self._span.view is None:
            raise NotSupported(f"Python cannot access the memory of {self!r}: copy it by DMA")
        return self._span.view

    def _destroy(self) -> None:
        library().call("doca_mmap_destroy", self._h)
        if self._span is not None:
            self._span.release()

    def _summary(self) -> str:
        flags = "imported" if self._permissions is None else self._permissions
        state = "started" if self._started else "not started"
        return f"{self.size:,} bytes at {self.address:#x} ({self._place_text}), {flags}, {state}"

    def _rows(self) -> list[tuple[str, object]]:
        flags = "set by the exporter" if self._permissions is None else self._permissions
        rows: list[tuple[str, object]] = [("Size", f"{self.size:,} bytes")]
        rows += [("Address", f"{self.address:#x}"), ("Place", self._place_text)]
        rows += [("Permissions", flags), ("Buffers", self.bufs)]
        return [*rows, ("State", "started" if self._started else "not started")]
