# SPDX-License-Identifier: Apache-2.0
"""Creation of a session's regions: of new memory on either side, or of existing memory."""

from __future__ import annotations

import contextlib
import errno
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import memory
from ..errors import DgkitError, NativeError, Unsupported
from ..memory.allocate import parse_on
from ..memory.shape import as_shape, total_size
from ..types import OWN_EXPORT, Access, is_memory
from .session_region import RegionRegistry, SessionRegion

if TYPE_CHECKING:
    from ..memory.gpu import GpuMemory
    from ..memory.host import HostMemory
    from ..memory.wrap import ForeignMemory
    from ..memory.wrap_gpu import ForeignGpuMemory
    from ..types import Memory
    from .resources import SessionResources
    from .session import Session

    OwnMemory: TypeAlias = HostMemory | GpuMemory | ForeignMemory | ForeignGpuMemory

_MAY_REFUSE = "an RDMA adapter may refuse GPU memory; on='gpu' tries it"
_PAGES_PER_S = 1 << 27  # bytes: lower bound of the rate at which a machine provides pages


class RegionFactory:
    """Creates and closes the regions of one session.

    Args:
        session: Session that the regions belong to; referenced weakly.
        resources: The session's connection, device and backend.
        registry: The session's open regions.
    """

    def __init__(
        self, session: Session, resources: SessionResources, registry: RegionRegistry
    ) -> None:
        self._session_ref = weakref.ref(session)
        self._registry = registry
        self.resources = resources

    def empty(self, shape: Any, dtype: Any, on: str, name: str | None) -> SessionRegion:
        """Create a region for Session.empty()."""
        side, place = _parse_on(on)
        local = side == self.resources.role
        place, chosen = _reachable_place(self.resources, place, local=local)
        if not local:
            size = total_size(as_shape(shape), dtype)
            return self._add(self._allocate_at_agent(side, place, chosen, size, name))
        mem = memory.empty(shape, dtype, on=place, name=name)
        region = self._register_owned(mem, Access.RW, side, name)
        region.chosen = chosen or getattr(mem, "chosen", "")
        return self._add(region)

    def register(
        self, obj: Any, access: Access | None, name: str | None, share_block: bool
    ) -> SessionRegion:
        """Create a region for Session.register()."""
        mem = obj
        if not is_memory(obj):
            if memory.is_gpu_array(obj):
                _reachable_place(self.resources, "gpu")
            mem = memory.wrap(obj, share_block=share_block, name=name)
        elif share_block and not getattr(obj, "share_block", False):
            raise ValueError(
                f"{obj!r} was made without share_block: dgkit.wrap(obj, share_block=True)"
            )
        return self._add(self._register(mem, access, self.resources.role, name))

    def empty_like(self, region: SessionRegion, size: int, name: str) -> SessionRegion:
        """Create a region, not in the registry, with another's place, access and method.

        A user's array on the host is replaced by a bytearray, which the DPU reaches in the same
        way; one on a GPU by memory that dgkit allocates there.
        """
        if region.local is None:
            return self._allocate_at_agent(region.on, region.place, "", size, name)
        old = region.local.memory
        if old.gpu is None and old.fd < 0 and region.place == "host":
            share = bool(getattr(old, "share_process", False))
            mem: OwnMemory = memory.wrap(bytearray(size), share_process=share, name=name)
        else:
            mem = memory.empty(size, on=region.place, name=name)
        return self._register_owned(mem, region.access, region.on, name)

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

    def reregister(self, region: SessionRegion) -> None:
        """Register a region of this process's memory with new resources; close it on failure."""
        assert region.local is not None
        resources, memory_ = self.resources, region.local.memory
        try:
            region.local.close(resources.timeout)
            local = resources.device.register(memory_, region.access, name=region.name)
            region.bind(self._session, region.id, resources.dpu.provider, self._close)
            region.attach(local)
            resources.dpu.adopt(region)
        except BaseException:
            self.discard(region)
            raise

    def reregister_all(self) -> dict[SessionRegion, DgkitError]:
        """Re-register the regions of this process's memory, discard the others; return errors."""
        errors = {}
        for region in self._registry.open:
            if region.local is None:
                self.discard(region)
                continue
            try:
                self.reregister(region)
            except DgkitError as error:
                errors[region] = error
        return errors

    def discard(self, region: SessionRegion) -> None:
        """Close a region whose memory is lost, or that could not be registered again."""
        with contextlib.suppress(DgkitError):
            region.free(self.resources.timeout)
        self._registry.remove(region)

    def take_over(self, region: SessionRegion, lost: RegionRegistry) -> None:
        """Move a region of this process's memory to this session, for Session.take_over().

        `lost` is the registry of the session that the region belongs to.
        """
        assert region.local is not None
        resources, memory_ = self.resources, region.local.memory
        region.local.close(resources.timeout)  # may raise RegionBusy; the caller can retry
        local = resources.device.register(memory_, region.access, name=region.name)
        lost.remove(region)
        try:
            self._bind(region)
            region.attach(local)
            resources.dpu.adopt(region)
            self._registry.add(region)
        except BaseException:
            self._registry.remove(region)
            region.free(resources.timeout)
            raise

    def _add(self, region: SessionRegion) -> SessionRegion:
        """Add a new region to the session; return it."""
        try:
            return self._registry.add(region)
        except BaseException:  # no caller gets the region
            region.close()
            raise

    def _close(self, region: SessionRegion, timeout: float) -> None:
        """Close both sides of a region, for SessionRegion.close()."""
        if self.resources.dpu.link.dead is None:
            self.resources.dpu.forget(region, timeout)
        region.free(timeout)
        self._registry.remove(region)

    def _register_owned(
        self, mem: OwnMemory, access: Access, on: str, name: str | None
    ) -> SessionRegion:
        """Return a region that owns its memory; if this fails, close the memory at once."""
        try:
            region = self._register(mem, access, on, name)
        except BaseException:
            mem.close()
            raise
        region.own_memory(mem.close)
        return region

    def _register(
        self, mem: Memory, access: Access | None, on: str, name: str | None
    ) -> SessionRegion:
        """Register memory with this process's device and make it usable by the DPU."""
        if getattr(mem, "gpu", None) is not None:
            _reachable_place(self.resources, "gpu")
        local = self.resources.device.register(mem, access, name=name)
        region = self._new(on, local.size, local.access, name)
        region.attach(local)
        try:
            self.resources.dpu.adopt(region)
        except BaseException:
            local.close()
            raise
        return region

    def _allocate_at_agent(
        self, side: str, place: str, chosen: str, size: int, name: str | None
    ) -> SessionRegion:
        """Have an agent allocate the memory."""
        region = self._new(side, size, Access.RW, name)
        timeout = self.resources.timeout + size / _PAGES_PER_S
        allocated = self.resources.dpu.allocate(region, name or "", place, timeout)
        region.place, region.chosen = allocated.place, chosen or allocated.chosen
        region.registration = allocated.registration
        return region

    def _new(self, on: str, size: int, access: Access, name: str | None) -> SessionRegion:
        region = SessionRegion(on=on, size=size, access=access)
        self._bind(region)
        region.name = name or f"{on} region {region.id}"
        return region

    def _bind(self, region: SessionRegion) -> None:
        number, provider = self._registry.next_id(), self.resources.dpu.provider
        region.bind(self._session, number, provider, self._close)

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


def _reachable_place(
    resources: SessionResources, place: str, *, local: bool = False
) -> tuple[str, str]:
    """Return the place of new memory, and for "auto" the reason if it is not a GPU.

    Args:
        resources: Those of the session whose DPU must reach the memory.
        place: Requested place.
        local: Whether the memory is allocated in this process.

    Raises:
        NativeError: The DPU cannot reach the place, or there is no GPU.
    """
    if place == "auto" and resources.dpu.provider == "verbs":
        no_gpu = memory.gpu_error() if local else None
        return "host", f"host memory: {no_gpu.strerror if no_gpu else _MAY_REFUSE}"
    if resources.dpu.provider in {"cuda", *OWN_EXPORT} or place in ("host", "pinned"):
        return place, ""
    error = _unreachable(resources, memory.gpu_error() if local else None)
    if place == "auto":
        return "host", f"host memory: {error.strerror}"
    raise error


def _unreachable(resources: SessionResources, gpu_error: NativeError | None) -> NativeError:
    """Return the error for GPU memory that the DPU cannot reach; `gpu_error` takes precedence."""
    if gpu_error is not None:
        return gpu_error
    remedy = "connect(provider='cuda')"
    if resources.role == "dpu":
        remedy = "connect(address, provider='cuda')"
    elif resources.owned is None:
        remedy = "start the agent by `dgkit serve --provider cuda`"
    provider = resources.dpu.provider
    text = f"this session's DPU uses {provider!r}, which cannot reach GPU memory: {remedy}"
    return Unsupported(errno.EOPNOTSUPP, text)
