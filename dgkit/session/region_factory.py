"""Regions of a session: of memory that it allocates, here or at the agent, or that is there."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from .. import memory
from ..errors import NativeError, Unsupported
from ..memory.placement import parse_on
from ..memory.shape import as_shape, total_size
from ..types import DOCA, Access, is_memory
from ..wire.messages import Allocate, Free

if TYPE_CHECKING:
    from .region import SessionRegion
    from .session import Session

__all__ = ["empty", "register"]

_PAGES_PER_S = 1 << 27  # bytes: no machine is slower to give pages, however busy it is


def empty(session: Session, shape: Any, dtype: Any, on: str, name: str | None) -> SessionRegion:
    """As Session.empty()."""
    side, place = _place(on)
    place, chosen = _within_reach(session, place, here=side == session.role)
    if side != session.role:
        return _at_agent(session, side, place, chosen, total_size(as_shape(shape), dtype), name)
    mem = memory.empty(shape, dtype, on=place, name=name)
    try:
        region = _registered(session, mem, Access.RW, side, name)
    except BaseException:
        mem.close()
        raise
    region.own(mem)
    region.chosen = chosen or getattr(mem, "chosen", "")
    return region


def _place(on: Any) -> tuple[str, str]:
    """Which side has the memory, and of what kind it is. ValueError: `on` is neither."""
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


def _within_reach(session: Session, place: str, *, here: bool = False) -> tuple[str, str]:
    """The place, as far as this session's DPU reaches, and why if that is another one.

    `here`: the memory is to be made in this process.
    """
    if session.dpu.provider in {"cuda", *DOCA} or place in ("host", "pinned"):
        return place, ""
    error = _no_reach(session, memory.gpu_error() if here else None)
    if place == "auto":
        return "host", f"host memory: {error.strerror}"
    raise error


def _no_reach(session: Session, no_gpu: NativeError | None) -> NativeError:
    """Another provider would reach GPU memory; but first there has to be a GPU."""
    if no_gpu is not None:
        return no_gpu
    way = "connect(provider='cuda')"
    if session.role == "dpu":
        way = "connect(address, provider='cuda')"
    elif not session.owned_pid:
        way = "start the agent by `dgkit serve --provider cuda`"
    provider = session.dpu.provider
    text = f"this session's DPU uses {provider!r}, which cannot reach GPU memory: {way}"
    return Unsupported(errno.EOPNOTSUPP, text)


def _at_agent(
    session: Session, side: str, place: str, chosen: str, size: int, name: str | None
) -> SessionRegion:
    export = session.role == "dpu"
    fields = (size, int(Access.RW), export, name or "", place)
    timeout = session.timeout + size / _PAGES_PER_S
    made = session._link.ask(Allocate, *fields, timeout=timeout)
    region = session.filing.new(side, size, Access.RW, name)
    region.handle, region.token = made.region, made.token
    region.place, region.chosen = made.place, chosen or made.chosen
    if export:
        try:
            region.remote = session.device.import_region(made.token)
        except BaseException:
            session._link.ask(Free, made.region, 0.0, timeout=session.timeout)
            raise
    return session.filing.file(region)


def register(
    session: Session, obj: Any, access: Access, name: str | None, share_block: bool
) -> SessionRegion:
    """As Session.register()."""
    mem = obj
    if not is_memory(obj):
        if memory.is_gpu_array(obj):
            _within_reach(session, "gpu")
        mem = memory.wrap(obj, share_block=share_block, name=name)
    elif share_block and not getattr(obj, "share_block", False):
        raise ValueError(f"{obj!r} was made without share_block: dgkit.wrap(obj, share_block=True)")
    return _registered(session, mem, access, session.role, name)


def _registered(
    session: Session, mem: Any, access: Access, on: str, name: str | None
) -> SessionRegion:
    if getattr(mem, "gpu", None) is not None:
        _within_reach(session, "gpu")
    local = session.device.register(mem, access, name=name)
    region = session.filing.new(on, local.size, access, name)
    region.take(local)
    try:
        session.dpu.adopt(region)
    except BaseException:
        local.close()
        raise
    return session.filing.file(region)
