"""Creation of a session's regions: of new memory on either side, or of existing memory."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from .. import memory
from ..errors import NativeError, Unsupported
from ..memory.placement import parse_on
from ..memory.shape import as_shape, total_size
from ..types import OWN_EXPORT, Access, is_memory
from .region import SessionRegion

if TYPE_CHECKING:
    from typing import Protocol

    from ..dma import Device
    from .backend import Backend
    from .region import RegionSession
    from .region_registry import RegionRegistry

    class FactorySession(RegionSession, Protocol):
        """Session as far as these functions need it: session.Session, which imports them."""

        role: str
        device: Device
        timeout: float
        registry: RegionRegistry

        @property
        def dpu(self) -> Backend: ...

        @property
        def owned_pid(self) -> int: ...


__all__ = ["empty", "like", "register", "take_over"]

_MAY_REFUSE = "an RDMA adapter may refuse GPU memory; on='gpu' tries it"
_PAGES_PER_S = 1 << 27  # bytes: lower bound of the rate at which a machine provides pages


def empty(
    session: FactorySession, shape: Any, dtype: Any, on: str, name: str | None
) -> SessionRegion:
    """Create a region as Session.empty()."""
    side, place = _parse_on(on)
    place, chosen = _reachable_place(session, place, local=side == session.role)
    if side != session.role:
        size = total_size(as_shape(shape), dtype)
        return session.registry.add(_at_agent(session, side, place, chosen, size, name))
    mem = memory.empty(shape, dtype, on=place, name=name)
    region = _owning(session, mem, Access.RW, side, name)
    region.chosen = chosen or getattr(mem, "chosen", "")
    return session.registry.add(region)


def like(session: FactorySession, region: SessionRegion, size: int, name: str) -> SessionRegion:
    """Create a region with the place, the access and the method of another.

    It is not in the registry. A user's array on the host is replaced by a bytearray, which the DPU
    reaches in the same way; one on a GPU by memory that dgkit allocates there.
    """
    if region.local is None:
        return _at_agent(session, region.on, region.place, "", size, name)
    old = region.local.memory
    if old.gpu is None and old.fd < 0 and region.place == "host":
        share = bool(getattr(old, "share_process", False))
        mem: Any = memory.wrap(bytearray(size), share_process=share, name=name)
    else:
        mem = memory.empty(size, on=region.place, name=name)
    return _owning(session, mem, region.access, region.on, name)


def _owning(
    session: FactorySession, mem: Any, access: Access, on: str, name: str | None
) -> SessionRegion:
    """Return a region that closes its memory, which is closed at once if this fails."""
    try:
        region = _registered(session, mem, access, on, name)
    except BaseException:
        mem.close()
        raise
    region.own(mem)
    return region


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
    session: FactorySession, place: str, *, local: bool = False
) -> tuple[str, str]:
    """Return the place, or for "auto" one that the DPU reaches, and the reason if it differs.

    Args:
        session: Session whose DPU is to reach the memory.
        place: Wanted place.
        local: Whether the memory is allocated in this process.

    Raises:
        NativeError: The DPU cannot reach the place, or there is no GPU.
    """
    if place == "auto" and session.dpu.provider == "verbs":
        no_gpu = memory.gpu_error() if local else None
        return "host", f"host memory: {no_gpu.strerror if no_gpu else _MAY_REFUSE}"
    if session.dpu.provider in {"cuda", *OWN_EXPORT} or place in ("host", "pinned"):
        return place, ""
    error = _unreachable(session, memory.gpu_error() if local else None)
    if place == "auto":
        return "host", f"host memory: {error.strerror}"
    raise error


def _unreachable(session: FactorySession, gpu_error: NativeError | None) -> NativeError:
    """Return the error for GPU memory that the DPU cannot reach; `gpu_error` takes precedence."""
    if gpu_error is not None:
        return gpu_error
    remedy = "connect(provider='cuda')"
    if session.role == "dpu":
        remedy = "connect(address, provider='cuda')"
    elif not session.owned_pid:
        remedy = "start the agent by `dgkit serve --provider cuda`"
    provider = session.dpu.provider
    text = f"this session's DPU uses {provider!r}, which cannot reach GPU memory: {remedy}"
    return Unsupported(errno.EOPNOTSUPP, text)


def _at_agent(
    session: FactorySession, side: str, place: str, chosen: str, size: int, name: str | None
) -> SessionRegion:
    """Have an agent allocate the memory."""
    region = _new(session, side, size, Access.RW, name)
    made = session.dpu.allocate(region, name or "", place, session.timeout + size / _PAGES_PER_S)
    region.place, region.chosen = made.place, chosen or made.chosen
    region.registration = made.registration
    return region


def _new(
    session: FactorySession, on: str, size: int, access: Access, name: str | None
) -> SessionRegion:
    number = session.registry.next_id()
    return SessionRegion(session, number, on=on, size=size, access=access, name=name)


def register(
    session: FactorySession, obj: Any, access: Access | None, name: str | None, share_block: bool
) -> SessionRegion:
    """Create a region as Session.register()."""
    mem = obj
    if not is_memory(obj):
        if memory.is_gpu_array(obj):
            _reachable_place(session, "gpu")
        mem = memory.wrap(obj, share_block=share_block, name=name)
    elif share_block and not getattr(obj, "share_block", False):
        raise ValueError(f"{obj!r} was made without share_block: dgkit.wrap(obj, share_block=True)")
    return session.registry.add(_registered(session, mem, access, session.role, name))


def take_over(session: FactorySession, lost: FactorySession, region: SessionRegion) -> None:
    """Move a region of this process's memory to another session as Session.take_over()."""
    assert region.local is not None
    memory_ = region.local.memory
    region.local.close(session.timeout)  # raises RegionBusy; then it can be tried again
    local = session.device.register(memory_, region.access, name=region.name)
    lost.registry.remove(region)
    region.move(session, session.registry.next_id(), local)
    try:
        session.dpu.adopt(region)
    except BaseException:
        region.free(session.timeout)
        region.closed = True
        raise
    session.registry.add(region)


def _registered(
    session: FactorySession, mem: Any, access: Access | None, on: str, name: str | None
) -> SessionRegion:
    """Register memory with this process's device and make it usable by the DPU."""
    if getattr(mem, "gpu", None) is not None:
        _reachable_place(session, "gpu")
    local = session.device.register(mem, access, name=name)
    region = _new(session, on, local.size, local.access, name)
    region.attach(local)
    try:
        session.dpu.adopt(region)
    except BaseException:
        local.close()
        raise
    return region
