"""Memory maps: memory that devices may reach, of this process or exported by another."""

from __future__ import annotations

from collections.abc import Sequence

from ._library import CONTROL, library
from .codes import Access
from .device import Device
from .errors import DocaError, NotSupported
from .handle import Handle
from .memory_span import Span, span_of

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Mmap"]


class Mmap(Handle):
    """A memory map (`doca_mmap`): created, told its devices, memory and permissions, and started.

    `memory` is anything with a buffer (a bytearray, a NumPy array, `dgkit.empty`), memory of a GPU
    (`dgkit.wrap`), or `(address, size)`. The first two kinds are kept where they are until the map
    is closed: a bytearray cannot be resized. An address is the caller's to keep; with it goes
    `dmabuf`, the fd of a dma-buf whose byte `dmabuf_offset` lies there. `devices` is one Device or
    several. `permissions`: by default what `memory` allows its own process. `start=False` leaves
    the start to `start()`.

    `size` is bytes, `address` is where they begin, in the process that owns them.

    NotPermitted for a permission to write to read-only memory.
    """

    __slots__ = ("_permissions", "_span", "_started", "address", "devices", "imported", "size")
    _name = "map"
    _order = 4
    _span: Span | None
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
        if not self.devices or not all(isinstance(one, Device) for one in self.devices):
            raise TypeError(f"devices is {devices!r}; it must be a Device, or several")
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
                span.let_go()
            else:
                self.close()
            raise

    def _make(self, span: Span) -> None:
        """Creates the map and tells it everything."""
        lib = library()
        with CONTROL:
            self._opened(lib.get("doca_mmap_create", "struct doca_mmap **"), *self.devices)
            for device in self.devices:
                self._call("doca_mmap_add_dev", device._handle())
            self._call("doca_mmap_set_permissions", int(self._permissions or 0))
            self._set_range(span, lib.ffi.cast("void *", span.address))

    def _set_range(self, span: Span, address: Any) -> None:
        """By the dma-buf, if there is one. Of a GPU's memory, if that is refused, by its address:
        the kernel module nvidia-peermem may know it."""
        if span.fd >= 0:
            try:
                name = "doca_mmap_set_dmabuf_memrange"
                return self._call(name, span.fd, address, span.offset, span.size)
            except DocaError:
                if not span.lent:
                    raise
        return self._call("doca_mmap_set_memrange", address, span.size)

    @classmethod
    def from_export(cls, descriptor: bytes, device: Device) -> Mmap:
        """The map of another process's memory, made of what its `export_pci()` gave.

        Its device can reach the memory as far as the exporter permits, this process cannot. It is
        started already. InvalidValue if the bytes are no descriptor.
        """
        Device._expect("device", device)
        made = cls.__new__(cls)
        Handle.__init__(made)
        made.devices, made.imported, made._started = (device,), True, True
        made._span = made._permissions = None
        lib, raw = library(), bytes(memoryview(descriptor))
        with CONTROL:
            name, kind = "doca_mmap_create_from_export", "struct doca_mmap **"
            dev = device._handle()
            made._opened(lib.get(name, kind, lib.ffi.NULL, raw, len(raw), dev), device)
            made.address, made.size = made._range()
        return made

    def start(self) -> None:
        """Makes the memory reachable. From now on it is as it is: BadState for changes."""
        self._call("doca_mmap_start")
        self._started = True

    def stop(self) -> None:
        """The opposite of `start()`. NotPermitted while buffers of it are there."""
        self._call("doca_mmap_stop")
        self._started = False

    @property
    def started(self) -> bool:
        """Whether it is started."""
        return self._h is not None and self._started

    @property
    def permissions(self) -> Access | None:
        """What it allows; may be set until it is started. None: imported, the exporter knows."""
        return self._permissions

    @permissions.setter
    def permissions(self, flags: Access) -> None:
        self._handle()
        if self._span is not None:
            flags = self._span.permissions(flags)
        self._call("doca_mmap_set_permissions", int(flags))
        self._permissions = Access(flags)

    def export_pci(self, device: Device | None = None) -> bytes:
        """A descriptor of at most 512 bytes, by which a DPU's process makes a map of this memory.

        `device`: that of several whose DPU it is. NotPermitted without PCI_READ_ONLY or
        PCI_READ_WRITE. Closing the map ends what the descriptor allows.
        """
        lib = library()
        with CONTROL:
            out, length = lib.ffi.new("const void **"), lib.ffi.new("size_t *")
            dev = (device or self.devices[0])._handle()
            self._call("doca_mmap_export_pci", dev, out, length)
            return bytes(lib.ffi.buffer(out[0], length[0]))

    @property
    def exported(self) -> bool:
        """Whether a descriptor was made of it."""
        return bool(self._get("doca_mmap_get_exported", "uint8_t *"))

    @property
    def bufs(self) -> int:
        """How many buffers of it are there."""
        return int(self._get("doca_mmap_get_num_bufs", "uint32_t *"))

    def _range(self) -> tuple[int, int]:
        lib = library()
        address, size = lib.ffi.new("void **"), lib.ffi.new("size_t *")
        self._call("doca_mmap_get_memrange", address, size)
        return int(lib.ffi.cast("uintptr_t", address[0])), int(size[0])

    @property
    def place(self) -> str:
        """Where the memory is: `host`, `cuda:0`, `another process`."""
        return "another process" if self._span is None else self._span.place

    @property
    def _where(self) -> str:
        """The same for a reader, who may be on the DPU: its memory is not the host's."""
        return "this process" if self.place == "host" else self.place

    def _view(self) -> memoryview:
        """Its bytes in this process. NotSupported if they are elsewhere."""
        self._handle()
        if self._span is None or self._span.view is None:
            raise NotSupported(f"{self!r} is no memory that Python can see: copy it by DMA")
        return self._span.view

    def _destroy(self) -> None:
        library().call("doca_mmap_destroy", self._h)
        if self._span is not None:
            self._span.let_go()

    def _about(self) -> str:
        flags = "imported" if self._permissions is None else self._permissions
        state = "started" if self._started else "not started"
        return f"{self.size} bytes at {self.address:#x} ({self._where}), {flags}, {state}"

    def _rows(self) -> list[tuple[str, object]]:
        flags = "the exporter knows" if self._permissions is None else self._permissions
        rows: list[tuple[str, object]] = [("Size", f"{self.size} bytes")]
        rows += [("Address", f"{self.address:#x}"), ("Place", self._where)]
        rows += [("Permissions", flags), ("Buffers", self.bufs)]
        return [*rows, ("State", "started" if self._started else "not started")]
