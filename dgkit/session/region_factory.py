"""Creation of a session's regions: of new memory on either side, or of existing memory."""

from __future__ import annotations

import contextlib
import errno
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import memory
from ..callbacks import Callbacks
from ..errors import DgkitError, NativeError, Unsupported
from ..memory.allocate import parse_on
from ..memory.shape import as_shape, total_size
from ..types import OWN_EXPORT, Access, is_memory
from .session_region import SessionRegion

if TYPE_CHECKING:
    from contextlib import ExitStack

    from ..memory.gpu import GpuMemory
    from ..memory.host import HostMemory
    from ..memory.wrap import ForeignMemory
    from ..memory.wrap_gpu import ForeignGpuMemory
    from ..types import Memory
    from .session import Session
    from .sides import Sides

    OwnMemory: TypeAlias = HostMemory | GpuMemory | ForeignMemory | ForeignGpuMemory


class RegionRegistry:
    """Open regions, in order of creation. Thread-safe.

    Attributes:
        notify: Called after each change.
    """

    def __init__(self) -> None:
        self._regions: dict[int, SessionRegion] = {}
        self._last_id = 0
        self.notify: Callbacks[[]] = Callbacks("a change of a session's regions")

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def open(self) -> tuple[SessionRegion, ...]:
        """Return the regions that are not closed."""
        return tuple(self._regions.values())

    def next_id(self) -> int:
        """Return the number of a new region."""
        self._last_id += 1
        return self._last_id

    def add(self, region: SessionRegion) -> SessionRegion:
        """Add a region that both sides have set up; return it."""
        self._regions[region.id] = region
        self.notify()
        return region

    def remove(self, region: SessionRegion) -> None:
        """Remove a region that was closed on both sides."""
        region.closed = True
        self._regions.pop(region.id, None)
        self.notify()

    def free_all(self, undo: ExitStack) -> None:
        """Register the freeing of all regions with `undo`."""
        for region in self.open:
            undo.callback(region.free, 1.0)

    def on_session_closed(self, kind: type[BaseException] | None, *_: object) -> None:
        """Mark all regions as closed unless an error occurred; runs as the last exit callback."""
        if kind is None:
            for region in self.open:
                region.closed = True
            self._regions.clear()
        self.notify()


_MAY_REFUSE = "an RDMA adapter may refuse GPU memory; on='gpu' tries it"
_PAGES_PER_S = 1 << 27  # bytes: lower bound of the rate at which a machine provides pages


class RegionFactory:
    """Creates and closes the regions of one session.

    Args:
        session: Session that the regions belong to; referenced weakly.
        sides: The session's two sides.
        registry: The session's open regions.
    """

    def __init__(self, session: Session, sides: Sides, registry: RegionRegistry) -> None:
        self._session_ref = weakref.ref(session)
        self._registry = registry
        self.sides = sides

    def empty(self, shape: Any, dtype: Any, on: str, name: str | None) -> SessionRegion:
        """Create a region for Session.empty()."""
        side, place = _parse_on(on)
        local = side == self.sides.role
        place, chosen = _reachable_place(self.sides, place, local=local)
        if not local:
            size = total_size(as_shape(shape), dtype)
            return self._add(self._at_agent(side, place, chosen, size, name))
        mem = memory.empty(shape, dtype, on=place, name=name)
        region = self._owning(mem, Access.RW, side, name)
        region.chosen = chosen or getattr(mem, "chosen", "")
        return self._add(region)

    def register(
        self, obj: Any, access: Access | None, name: str | None, share_block: bool
    ) -> SessionRegion:
        """Create a region for Session.register()."""
        mem = obj
        if not is_memory(obj):
            if memory.is_gpu_array(obj):
                _reachable_place(self.sides, "gpu")
            mem = memory.wrap(obj, share_block=share_block, name=name)
        elif share_block and not getattr(obj, "share_block", False):
            raise ValueError(
                f"{obj!r} was made without share_block: dgkit.wrap(obj, share_block=True)"
            )
        return self._add(self._registered(mem, access, self.sides.role, name))

    def like(self, region: SessionRegion, size: int, name: str) -> SessionRegion:
        """Create a region with the place, the access and the method of another.

        It is not in the registry. For a user's array on the host, it uses a bytearray, which the
        DPU reaches in the same way; for one on a GPU, memory that dgkit allocates there.
        """
        if region.local is None:
            return self._at_agent(region.on, region.place, "", size, name)
        old = region.local.memory
        if old.gpu is None and old.fd < 0 and region.place == "host":
            share = bool(getattr(old, "share_process", False))
            mem: OwnMemory = memory.wrap(bytearray(size), share_process=share, name=name)
        else:
            mem = memory.empty(size, on=region.place, name=name)
        return self._owning(mem, region.access, region.on, name)

    def replace_others(self, region: SessionRegion) -> SessionRegion:
        """Close the other open regions that have this region's name, and return this region.

        Raises:
            RegionBusy: One of them has a transfer in flight; `region` was closed instead.
        """
        for other in self._registry.open:
            if other is not region and other.name == region.name:
                try:
                    other.close()
                except BaseException:
                    region.close()
                    raise
        return region

    def renew(self, region: SessionRegion) -> None:
        """Register a region of this process's memory with the sides in place of lost ones.

        If that fails, the region is closed.
        """
        assert region.local is not None
        sides, memory_ = self.sides, region.local.memory
        try:
            region.local.close(sides.timeout)
            local = sides.device.register(memory_, region.access, name=region.name)
            region.move(self._session, region.id, sides.dpu.provider, self._close)
            region.attach(local)
            sides.dpu.adopt(region)
        except BaseException:
            self.drop(region)
            raise

    def renew_all(self) -> dict[SessionRegion, DgkitError]:
        """Renew the regions of this process's memory, and drop the others; return what failed."""
        errors = {}
        for region in self._registry.open:
            if region.local is None:
                self.drop(region)
                continue
            try:
                self.renew(region)
            except DgkitError as error:
                errors[region] = error
        return errors

    def drop(self, region: SessionRegion) -> None:
        """Close a region that the lost side had, or that could not be registered again."""
        with contextlib.suppress(DgkitError):
            region.free(self.sides.timeout)
        self._registry.remove(region)

    def take_over(self, region: SessionRegion, lost: RegionRegistry) -> None:
        """Move a region of this process's memory to this session, for Session.take_over().

        `lost` is the registry of the session that the region belongs to.
        """
        assert region.local is not None
        sides, memory_ = self.sides, region.local.memory
        region.local.close(sides.timeout)  # may raise RegionBusy; the caller can retry
        local = sides.device.register(memory_, region.access, name=region.name)
        lost.remove(region)
        try:
            self._enter(region)
            region.attach(local)
            sides.dpu.adopt(region)
            self._registry.add(region)
        except BaseException:
            self._registry.remove(region)
            region.free(sides.timeout)
            raise

    def _add(self, region: SessionRegion) -> SessionRegion:
        """Add a new region to the session; return it."""
        try:
            return self._registry.add(region)
        except BaseException:  # Ctrl-C: no caller gets the region
            region.close()
            raise

    def _close(self, region: SessionRegion, timeout: float) -> None:
        """Close both sides of a region, for SessionRegion.close()."""
        if self.sides.dpu.link.dead is None:
            self.sides.dpu.forget(region, timeout)
        region.free(timeout)
        self._registry.remove(region)

    def _owning(self, mem: OwnMemory, access: Access, on: str, name: str | None) -> SessionRegion:
        """Return a region that owns its memory; if this fails, close the memory at once."""
        try:
            region = self._registered(mem, access, on, name)
        except BaseException:
            mem.close()
            raise
        region.own(mem.close)
        return region

    def _registered(
        self, mem: Memory, access: Access | None, on: str, name: str | None
    ) -> SessionRegion:
        """Register memory with this process's device and make it usable by the DPU."""
        if getattr(mem, "gpu", None) is not None:
            _reachable_place(self.sides, "gpu")
        local = self.sides.device.register(mem, access, name=name)
        region = self._new(on, local.size, local.access, name)
        region.attach(local)
        try:
            self.sides.dpu.adopt(region)
        except BaseException:
            local.close()
            raise
        return region

    def _at_agent(
        self, side: str, place: str, chosen: str, size: int, name: str | None
    ) -> SessionRegion:
        """Have an agent allocate the memory."""
        region = self._new(side, size, Access.RW, name)
        timeout = self.sides.timeout + size / _PAGES_PER_S
        made = self.sides.dpu.allocate(region, name or "", place, timeout)
        region.place, region.chosen = made.place, chosen or made.chosen
        region.registration = made.registration
        return region

    def _new(self, on: str, size: int, access: Access, name: str | None) -> SessionRegion:
        region = SessionRegion(on=on, size=size, access=access)
        self._enter(region)
        region.name = name or f"{on} region {region.id}"
        return region

    def _enter(self, region: SessionRegion) -> None:
        number, provider = self._registry.next_id(), self.sides.dpu.provider
        region.move(self._session, number, provider, self._close)

    @property
    def _session(self) -> Session:
        session = self._session_ref()
        assert session is not None  # its method called this object
        return session


def _parse_on(on: Any) -> tuple[str, str]:
    """Return the side that has the memory, and its place. Raises ValueError if invalid."""
    if on == "dpu":
        return "dpu", "host"
    try:
        parse_on(on)
    except ValueError:
        raise ValueError(
            f"on is {on!r}; it must be 'host' or 'dpu', or another kind of the host's memory: "
            "'pinned', 'gpu', 'cuda:0' (the GPU's number), 'auto'"
        ) from None
    return "host", on


def _reachable_place(sides: Sides, place: str, *, local: bool = False) -> tuple[str, str]:
    """Return the place (for "auto", one that the DPU reaches) and the reason if it differs.

    Args:
        sides: The sides of the session whose DPU must reach the memory.
        place: Requested place.
        local: Whether the memory is allocated in this process.

    Raises:
        NativeError: The DPU cannot reach the place, or there is no GPU.
    """
    if place == "auto" and sides.dpu.provider == "verbs":
        no_gpu = memory.gpu_error() if local else None
        return "host", f"host memory: {no_gpu.strerror if no_gpu else _MAY_REFUSE}"
    if sides.dpu.provider in {"cuda", *OWN_EXPORT} or place in ("host", "pinned"):
        return place, ""
    error = _unreachable(sides, memory.gpu_error() if local else None)
    if place == "auto":
        return "host", f"host memory: {error.strerror}"
    raise error


def _unreachable(sides: Sides, gpu_error: NativeError | None) -> NativeError:
    """Return the error for GPU memory that the DPU cannot reach; `gpu_error` takes precedence."""
    if gpu_error is not None:
        return gpu_error
    remedy = "connect(provider='cuda')"
    if sides.role == "dpu":
        remedy = "connect(address, provider='cuda')"
    elif sides.owned is None:
        remedy = "start the agent by `dgkit serve --provider cuda`"
    provider = sides.dpu.provider
    text = f"this session's DPU uses {provider!r}, which cannot reach GPU memory: {remedy}"
    return Unsupported(errno.EOPNOTSUPP, text)
