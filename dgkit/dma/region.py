"""Memory regions: registered here, or imported."""

from __future__ import annotations

import contextlib
import os
import warnings

from ..buffers import flat_view
from ..errors import AccessDenied, ClosedError, DgkitError, ExportError
from ..types import DOCA, Access, GpuSpan, is_memory, parse_access
from ._ffi import check, ffi, lib, nanoseconds
from .memory_desc import READONLY, described_gpu, part

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .device import Device

__all__ = ["Region", "RemoteRegion"]

_SHARE_PROCESS, _MAY_FAULT = 2, 4
_METHODS = ("map", "vm", "ask", "gpu", "lent", "doca")
_HOW = {
    "map": "mapped into this process",
    "vm": "copied by the kernel (process_vm_readv)",
    "ask": "copied by its owner, which is asked",
    "gpu": "mapped on the GPU",
    "doca": "by DOCA, which the owner exported it to",
}

# What a finalizer could not close because transfers are still in flight: it must not be freed.
_kept: list[tuple[Any, ...]] = []


class _Base:
    """What both kinds have: a handle, an id for records, and an end."""

    __slots__ = ("__weakref__", "_device", "_pid", "_r", "access", "id", "name", "size")

    access: Access
    id: int
    size: int

    def __init__(self, device: Device, name: str | None) -> None:
        self._r: Any = None
        self._device = device
        self._pid = os.getpid()
        self.name = name
        # Before the C core knows it: Ctrl-C may come at any moment, and the device closes them all.
        device._regions.add(self)  # type: ignore[arg-type] # it is one of the two kinds

    def _open(self, call: Any, *args: Any) -> None:
        """A C call that makes the region. What it made is known, wherever Ctrl-C comes."""
        out = ffi.new("dg_region **")
        try:
            check(call(*args, out))
        finally:
            self._r = out[0] or None
        info = self._info()
        self.id, self.size, self.access = info.id, info.size, Access(info.access)

    def _info(self) -> Any:
        info = ffi.new("dg_region_info *")
        if not self.closed:
            check(lib.dg_region_info_get(self._r, info))
        return info

    @property
    def device(self) -> Device:
        """The device that it belongs to."""
        return self._device

    @property
    def closed(self) -> bool:
        """Whether it is closed, by itself or with its device."""
        return self._r is None or self._device.closed

    def close(self, timeout: float = 1.0) -> None:
        """Refuses new transfers, waits for those in flight, then lets go. Again: does nothing.

        RegionBusy after `timeout` seconds: new transfers stay refused and the memory stays as it
        is; close() may be called again.
        """
        if self._r is None:
            return
        if not self._device.closed:  # else it went with the device: the collector knows no order
            check(lib.dg_region_close(self._r, nanoseconds(timeout)))
        self._r = None
        self._let_go()

    def _let_go(self) -> None:
        """After the C core gave the memory up."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_r", None) is None or self.closed:
            return
        if self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        try:
            self.close(timeout=0.1)
        except DgkitError:
            _kept.append(self._pinned())

    def _pinned(self) -> tuple[Any, ...]:
        return (self._r, self._device)

    def _state(self) -> str:
        """What keeps transfers from it, in a word; "" if nothing does."""
        if self.closed:
            return "closed"
        info = self._info()
        return "lost" if info.lost else "revoked" if info.revoked else ""

    def _rows(self) -> list[tuple[str, object]]:
        """What a card says of this kind."""
        return [("Id", self.id)]

    def _repr_html_(self) -> str:
        from ..html_cards import access_text, card, provider_badge

        rows = [("Size", f"{self.size} bytes"), ("Access", access_text(self.access)), *self._rows()]
        state = self._state()
        title = type(self).__name__ + (f" ({state})" if state else "")
        return card(title, rows, badge=provider_badge(self._device.provider))


class Region(_Base):
    """Memory registered with a device. Made by `Device.register`.

    While it is open the bytes stay where they are: a bytearray cannot be resized, an mmap cannot
    be closed. `close()` is a promise: once it returns, no importer moves a byte of it any more.
    """

    __slots__ = ("_bytes", "_keep", "_span", "memory", "place")

    def __init__(
        self,
        device: Device,
        memory: Any,
        access: Access,
        *,
        offset: int,
        size: int | None,
        name: str | None,
        share_process: bool,
    ) -> None:
        super().__init__(device, name if name is not None else getattr(memory, "name", None))
        self.memory = memory
        self.place = getattr(memory, "place", "host")
        known = is_memory(memory)
        self._bytes: Any = None
        self._span: GpuSpan | None = None
        self._keep = getattr(memory, "keep", None) if known else None
        try:
            if known and getattr(memory, "gpu", None) is not None:
                self._span = memory.gpu
                raw = described_gpu(memory, memory.gpu, offset, size)
            else:
                raw = self._describe(known, offset, size, share_process)
            self._open(lib.dg_region_register, device._handle(), raw, int(access))
        except BaseException:
            if self._r is None:
                self._let_go()
            raise

    def _describe(self, known: bool, offset: int, size: int | None, share_process: bool) -> Any:
        view = flat_view(self.memory.buffer if known else self.memory)
        self._bytes = ffi.from_buffer("char[]", view)
        flags = READONLY if view.readonly else 0
        del view  # a traceback keeps what is here, and the object must be free if this fails
        if share_process or (known and self.memory.share_process):
            flags |= _SHARE_PROCESS
        start, length = part(len(self._bytes), offset, size)
        raw = ffi.new("dg_memory *")
        raw.addr = ffi.cast("char *", self._bytes) + start
        raw.size = length
        raw.fd = self.memory.fd if known else -1
        raw.fd_offset = self.memory.fd_offset + start if known else 0
        raw.flags = flags
        if raw.fd < 0 and self._may_fault(known):
            raw.flags |= _MAY_FAULT
        return raw

    def _may_fault(self, known: bool) -> bool:
        """Whether a file lies under the bytes; looked up once for each Memory object."""
        found = getattr(self.memory, "may_fault", None) if known else None
        if found is None:
            found = bool(check(lib.dg_memory_may_fault(self._bytes, len(self._bytes))))
            # A Memory of the user's own may have no place for it: then it is looked up again.
            # (TypeError is what a frozen dataclass with slots raises.)
            with contextlib.suppress(AttributeError, TypeError):
                if known:
                    self.memory.may_fault = found
        return bool(found)

    def export(self, access: str | Access | None = None) -> bytes:
        """A descriptor of at most 768 bytes: whoever of this user holds it can import the region.

        `access` narrows the region's own. AccessDenied if it would widen it, or write to memory
        that was allocated with readonly_export=True.
        """
        if self._span is not None and self._span.kind == "none" and not self._by_doca:
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
        length = check(lib.dg_region_export(self._r, int(flags), buffer, room))
        return bytes(ffi.buffer(buffer, length))

    @property
    def _by_doca(self) -> bool:
        """DOCA exports GPU memory that CUDA has no other way to share."""
        return self._device.provider in DOCA

    @property
    def importers(self) -> int:
        """How many imports of it are alive."""
        return int(self._info().importers)

    @property
    def revoked(self) -> bool:
        """Whether close() was called, also when it could not finish."""
        return self.closed or bool(self._info().revoked)

    def _let_go(self) -> None:
        # A finalizer may come when the buffer is gone already; there is nothing to release then.
        with contextlib.suppress(ValueError):
            if self._bytes is not None:
                ffi.release(self._bytes)
        self._keep = None

    def _pinned(self) -> tuple[Any, ...]:
        return (*super()._pinned(), self._bytes, self._keep, self.memory)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        state = self._state() or self.access
        return f"<dgkit.Region id {self.id}{name}, {self.size} bytes on {self.place}, {state}>"

    def _rows(self) -> list[tuple[str, object]]:
        named: list[tuple[str, object]] = [("Name", self.name)] if self.name else []
        return [*named, ("Place", self.place), ("Importers", self.importers), *super()._rows()]


class RemoteRegion(_Base):
    """A region that was imported. Made by `Device.import_region`."""

    __slots__ = ("method", "peer_pid")

    def __init__(self, device: Device, token: bytes, timeout: float) -> None:
        super().__init__(device, None)
        token = bytes(memoryview(token))
        limit = nanoseconds(timeout)
        self._open(lib.dg_region_import, device._handle(), token, len(token), limit)
        info = self._info()
        self.method = _METHODS[info.method]
        self.peer_pid = int(info.peer_pid)

    @property
    def lost(self) -> bool:
        """Whether its exporter is gone: transfers then complete as PEER_LOST."""
        return bool(self._info().lost)

    @property
    def revoked(self) -> bool:
        """Whether its exporter closed it: transfers then complete as REMOTE_ACCESS_ERROR."""
        return bool(self._info().revoked)

    def __repr__(self) -> str:
        state = self._state() or f"{self.access}, {self.method}"
        owner = f"process {self.peer_pid}"
        return f"<dgkit.RemoteRegion id {self.id}, {self.size} bytes of {owner}, {state}>"

    def _rows(self) -> list[tuple[str, object]]:
        how, owner = _HOW[self.method], f"process {self.peer_pid}"
        return [("Owner", owner), ("Reached", how), *super()._rows()]
