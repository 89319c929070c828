# SPDX-License-Identifier: Apache-2.0
"""Memory regions: registered with a device, or imported by one."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings

from ..buffers import flat_view
from ..errors import AccessDenied, BoundsError, ClosedError, DgkitError, ExportError
from ..types import OWN_EXPORT, Access, GpuSpan, is_memory, parse_access
from ..unique import Closable
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds, native, open_handle, raise_for
from .buffer_export import exported

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .context import DeviceContext

_READONLY, SHARE_PROCESS, _MAY_FAULT, ON_DEMAND = 1, 2, 4, 8  # enum dg_memory_flags
_GPU_KINDS = {"vmm": 1, "ipc": 2, "none": 3}  # enum dg_memory_kind
# How an imported region's bytes are reached, by enum dg_method: name, text, and what is emulated.
_METHODS = (
    ("map", "mapped into this process", ""),
    ("vm", "copied by the kernel (process_vm_readv)", ""),
    ("proxy", "copied by its owner on request", ""),
    ("gpu", "mapped on the GPU", ""),
    ("export_only", "not at all", ""),
    ("doca", "by DOCA, from the owner's DOCA export", ""),
    ("rdma", "by RDMA, on a connection to its owner", ""),
    ("bar", "as an emulated PCI BAR, mapped write-combining into this process", "bar"),
    ("qp", "by RDMA, on a queue pair that was connected by hand", ""),
)
_REGISTRATIONS = ("", "pinned", "on demand", "dma-buf", "nvidia-peermem")
_REGISTRATION_TEXTS = {
    "pinned": "pinned for the RDMA adapter",
    "on demand": "on demand: not pinned, the RDMA adapter pages it",
    "dma-buf": "with the RDMA adapter, as a dma-buf",
    "nvidia-peermem": "with the RDMA adapter, by its address (nvidia-peermem)",
}

# Regions that a finalizer could not close, since transfers are in flight; keeps their memory.
_leaked: list[tuple[Any, ...]] = []


class _Base(native.RegionHandle, Closable):
    """Base of both kinds of region: handle, id and close."""

    __slots__ = (
        *("__weakref__", "_closed", "_device", "_pid", "_r", "access", "emulated", "name"),
        *("registration", "size"),
    )

    access: Access
    size: int
    registration: str
    emulated: str

    def __init__(self, device: DeviceContext, name: str | None) -> None:
        self._r: Any = None
        self._closed = False
        self._device = device
        self._pid = os.getpid()
        self.name = name
        self.emulated = ""
        # Before the C call: if that is interrupted, the device closes the region.
        device._regions.add(self)

    def _open(self, call: Any, *args: Any) -> None:
        """Create the C region by `call`."""
        open_handle(self, "_r", "dg_region", (self._device._d,), call, *args)
        info = self._info()
        if not info.size:
            raise ClosedError("another thread has closed the device")
        self._describe_as(info)

    def _describe_as(self, info: native.dg_region_info) -> None:
        """Set the attributes of an open region; `access` last, see `__del__`."""
        self.registration = _REGISTRATIONS[info.registration]
        self._device.emulated = self.emulated or self._device.emulated
        self.id, self.size, self.access = info.id, info.size, Access(info.access)

    def _info(self) -> native.dg_region_info:
        """Return the region's state; its size is 0 if the region is closed."""
        info = ffi.new("dg_region_info *")
        rc = -errno.ESTALE if self.closed else lib.dg_region_info_get(self._r.c, info)
        if rc and rc != -errno.ESTALE:
            raise_for(rc)
        return info

    @property
    def device(self) -> DeviceContext:
        """Device that the region belongs to."""
        return self._device

    @property
    def closed(self) -> bool:
        """True if the region or its device is closed."""
        return self._closed or self._r is None or self._device.closed

    def close(self, timeout: float = 1.0) -> None:
        """Refuse new transfers, wait for those in flight, then release the memory. Idempotent.

        Args:
            timeout: Seconds to wait for transfers in flight.

        Raises:
            RegionBusy: Transfers are still in flight after `timeout` seconds, or a process that
                imported the region has not acknowledged the end, such as one that is paused. New
                transfers stay refused, the memory stays valid, and close() may be called again.
        """
        if self._closed or self._r is None:
            return
        check(lib.dg_region_close(self._r.c, nanoseconds(timeout)))
        self._closed = True
        self._release()

    def _release(self) -> None:
        """Release the memory, after the C core released the region."""

    def __del__(self) -> None:
        if getattr(self, "_r", None) is None or self.closed:
            return
        try:
            # Without `access` the constructor was interrupted: no caller got the region.
            if self._pid == os.getpid() and hasattr(self, "access"):
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        finally:
            try:
                self.close(timeout=0.1)
            except DgkitError:
                _leaked.append(self._in_use())

    def _in_use(self) -> tuple[Any, ...]:
        return (self._r, self._device)

    def _state(self) -> str:
        """Return why transfers are impossible in one word, or "" if they are possible."""
        info = self._info()
        if not info.size:
            return "closed"
        return "lost" if info.lost else "revoked" if info.revoked else ""

    def _rows(self) -> list[tuple[str, object]]:
        """Return the rows of the HTML card that this kind of region adds."""
        return [("Id", self.id)]

    def _repr_html_(self) -> str:
        from ..html_cards import access_text, card, provider_badge
        from ..units import plural

        rows = [
            ("Size", plural(self.size, "byte")),
            ("Access", access_text(self.access)),
            *self._rows(),
        ]
        if self.registration:
            rows.append(("Registered", _REGISTRATION_TEXTS[self.registration]))
        state = self._state()
        title = type(self).__name__ + (f" ({state})" if state else "")
        return card(title, rows, badge=provider_badge(self._device._label))


class Region(_Base):
    """Memory registered with a device. Created by `Device.register`.

    While the region is open its bytes cannot move: a bytearray cannot be resized, an mmap cannot be
    closed. Once `close()` returns, no importer can access the bytes any more.

    Attributes:
        registration: How the memory is registered with the RDMA adapter: `pinned`, `on demand`,
            or for GPU memory `dma-buf` or `nvidia-peermem`; "" with other providers.
        address: Address of the first byte: of this process, or a device pointer.
    """

    __slots__ = ("_bytes", "_keep", "_span", "address", "memory", "place")

    def __init__(
        self,
        device: DeviceContext,
        memory: Any,
        access: Access | None,
        *,
        part: tuple[int, int | None],
        name: str | None,
        flags: int,
    ) -> None:
        super().__init__(device, name if name is not None else getattr(memory, "name", None))
        self.memory = memory
        self.place = getattr(memory, "place", "host")
        known = is_memory(memory)
        self._bytes: Any = None
        self._span: GpuSpan | None = None
        self._keep = getattr(memory, "keep", None) if known else None
        self.emulated = getattr(memory, "emulated", "") if known else ""
        try:
            if known and getattr(memory, "gpu", None) is not None:
                self._span = memory.gpu
                raw = _describe_gpu(memory, *part)
                flags &= ~SHARE_PROCESS  # applies only to memory that the CPU accesses
            else:
                raw = self._describe(known, *part)
            if access is None:
                access = Access.READ if raw.flags & _READONLY else Access.RW
            raw.flags |= flags
            self.address = int(ffi.cast("uintptr_t", raw.addr))
            self._open(lib.dg_region_register, device._handle(), raw, int(access))
        except BaseException:
            if self._r is None:
                self._release()
            raise

    @property
    def array(self) -> Any:
        """The memory's `array`, of all its bytes: NumPy's, or CuPy's if they are on a GPU.

        Raises:
            AttributeError: The memory is not of `dgkit.empty()` or `dgkit.wrap()`.
        """
        if not is_memory(self.memory):
            kind = type(self.memory).__name__
            raise AttributeError(f"{self!r} has no array: its memory is a {kind} of the caller")
        return getattr(self.memory, "array")  # noqa: B009 (a Memory need not have one)

    def _describe(self, known: bool, offset: int, size: int | None) -> native.dg_memory:
        view = flat_view(self.memory.buffer if known else self.memory)
        address, self._bytes = exported(view)
        total, flags = view.nbytes, _READONLY if view.readonly else 0
        del view  # else a traceback would keep the view, and so the caller's buffer exported
        if known and self.memory.share_process:
            flags |= SHARE_PROCESS
        start, length = _part(total, offset, size)
        raw = ffi.new("dg_memory *")
        raw.addr = address + start
        raw.size = length
        raw.fd = self.memory.fd if known else -1
        raw.fd_offset = self.memory.fd_offset + start if known else 0
        raw.flags = flags
        native_fields = getattr(self.memory, "native_fields", None) if known else None
        for field, value in native_fields(start).items() if native_fields else ():
            setattr(raw, field, value)
        if raw.fd < 0 and self._is_file_backed(known, address, total):
            raw.flags |= _MAY_FAULT
        return raw

    def _is_file_backed(self, known: bool, address: Any, size: int) -> bool:
        """Return whether a file backs the bytes; looked up once per Memory object."""
        found = getattr(self.memory, "may_fault", None) if known else None
        if found is None:
            found = bool(check(lib.dg_memory_may_fault(address, size)))
            # A user's Memory class may refuse the attribute (a frozen dataclass with slots raises
            # TypeError): then it is looked up each time.
            with contextlib.suppress(AttributeError, TypeError):
                if known:
                    self.memory.may_fault = found
        return bool(found)

    def export(self, access: str | Access | None = None) -> bytes:
        """Return a descriptor: any process of this user that has it can import the region.

        Args:
            access: Narrows the region's access; None for all of it.

        Returns:
            At most 768 bytes.

        Raises:
            AccessDenied: `access` would widen the region's, or allow writes to memory that was
                allocated with `readonly_export=True`.
            ExportError: CUDA cannot share this GPU memory.
        """
        if self._span is not None and self._span.kind == "none" and not self._has_own_export:
            raise ExportError(self._span.why, check="")
        locked = getattr(self.memory, "readonly_export", False)
        flags = self.access if access is None else parse_access(access)
        if locked and access is None:
            flags &= ~Access.WRITE
        if locked and (flags & Access.WRITE or not flags):
            raise AccessDenied(f"{self!r} has readonly_export=True: export it as 'r'")
        self._device._handle()
        if self.closed:
            raise ClosedError(f"{self!r} is closed")
        room = lib.DG_DESCRIPTOR_MAX
        buffer = ffi.new("uint8_t[]", room)
        length = check(lib.dg_region_export(self._r.c, int(flags), buffer, room))
        return bytes(ffi.buffer(buffer, length))

    @property
    def _has_own_export(self) -> bool:
        """True if the provider has its own export, which can share GPU memory that CUDA cannot."""
        return self._device.provider in OWN_EXPORT

    @property
    def importers(self) -> int:
        """Number of live imports of the region."""
        return int(self._info().importers)

    @property
    def revoked(self) -> bool:
        """True if close() was called, even if it could not finish."""
        info = self._info()
        return not info.size or bool(info.revoked)

    def _release(self) -> None:
        # In a finalizer the buffer may be released already.
        with contextlib.suppress(ValueError):
            if self._bytes is not None:
                ffi.release(self._bytes)
        self._keep = None

    def _in_use(self) -> tuple[Any, ...]:
        return (*super()._in_use(), self._bytes, self._keep, self.memory)

    def __repr__(self) -> str:
        from ..units import plural

        name = f" {self.name!r}" if self.name else ""
        about = f"{plural(self.size, 'byte')} on {self._where()}, {self._state() or self.access}"
        about += f", {self.registration}" if self.registration else ""
        return f"<dgkit.Region id {self.id}{name}, {about}>"

    def _rows(self) -> list[tuple[str, object]]:
        named: list[tuple[str, object]] = [("Name", self.name)] if self.name else []
        return [*named, ("Place", self._where()), ("Importers", self.importers), *super()._rows()]

    def _where(self) -> str:
        return f"{self.place}, which is emulated" if self.emulated else self.place


class RemoteRegion(_Base):
    """Imported region. Created by `Device.import_region` or `QueuePair.import_memory`.

    Attributes:
        registration: How the memory is registered with the exporter's RDMA adapter; values as
            for Region.
    """

    __slots__ = ("_reached", "method", "peer_pid")

    def __init__(self, device: DeviceContext, descriptor: bytes, timeout: float = 1.0) -> None:
        super().__init__(device, None)
        try:
            raw = bytes(memoryview(descriptor))
        except TypeError:
            kind = type(descriptor).__name__
            raise TypeError(
                f"token has type {kind}; it must be the bytes that export() returned"
            ) from None
        limit = nanoseconds(timeout)
        self._open(lib.dg_region_import, device._handle(), raw, len(raw), limit)

    def _describe_as(self, info: native.dg_region_info) -> None:
        self.method, self._reached, self.emulated = _METHODS[info.method]
        self.peer_pid = int(info.peer_pid)
        super()._describe_as(info)

    @property
    def lost(self) -> bool:
        """True if the exporter is gone: transfers complete as PEER_LOST."""
        return bool(self._info().lost)

    @property
    def revoked(self) -> bool:
        """True if the exporter closed the region: transfers complete as REMOTE_ACCESS_ERROR."""
        return bool(self._info().revoked)

    def __repr__(self) -> str:
        from ..units import plural

        state = self._state() or f"{self.access}, {self.method}"
        state += f", {self.registration}" if self.registration else ""
        about = f"{plural(self.size, 'byte')} of {self._owner()}, {state}"
        return f"<dgkit.RemoteRegion id {self.id}, {about}>"

    def _owner(self) -> str:
        return "the emulated host" if self.emulated else f"process {self.peer_pid}"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Owner", self._owner()), ("Reached", self._reached), *super()._rows()]


def region_method(region: Any) -> str:
    """Return how the device reaches a region's bytes; "export_only": not at all."""
    return _METHODS[region._info().method][0]


def region_ids(local: Any, remote: Any) -> tuple[int, int]:
    """Return the ids of two regions; the C core checks which kind each of them is.

    Raises:
        TypeError: One of them is not a region.
    """
    if not isinstance(local, _Base):
        raise TypeError(f"local is {local!r:.60}; it must be a Region (Device.register)")
    if not isinstance(remote, _Base):
        raise TypeError(f"remote is {remote!r:.60}; it must be a RemoteRegion (import_region)")
    return local.id, remote.id


def _part(total: int, offset: int, size: int | None) -> tuple[int, int]:
    """Return start and length of a range of `total` bytes; BoundsError if out of bounds."""
    start = whole("offset", offset)
    length = total - start if size is None else whole("size", size, 1)
    if length < 1 or start + length > total:
        raise BoundsError(f"offset {start} + size {length} leaves the memory's {total} bytes")
    return start, length


def _describe_gpu(memory: Any, offset: int, size: int | None) -> native.dg_memory:
    """Return the `dg_memory` of a range of GPU memory."""
    span: GpuSpan = memory.gpu
    start, length = _part(span.size, offset, size)
    raw = ffi.new("dg_memory *")
    raw.addr = ffi.cast("char *", span.address) + start
    raw.size = length
    raw.kind = _GPU_KINDS[span.kind]
    raw.flags = _READONLY if getattr(memory, "readonly", False) else 0
    raw.fd = span.fd
    raw.fd_offset = span.offset + start
    raw.block = span.block
    raw.uuid = span.uuid
    raw.handle = span.handle.ljust(64, b"\0")
    return raw
