"""Memory maps: memory of this process, or exported by another process, that devices can access."""

from __future__ import annotations

from collections.abc import Sequence

from ._library import CONTROL, library
from .codes import Access
from .device import Device
from .errors import DocaError, NotSupported
from .handle import Handle
from .memory_span import MemorySpan, span_of

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any


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
