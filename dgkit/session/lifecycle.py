"""End of a session: by close(), in the child of a fork, at the exit of the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
from typing import TYPE_CHECKING

from ..errors import DgkitError, PeerError
from ..live_set import LiveSet
from ..wire.messages import Bye

if TYPE_CHECKING:
    from typing import Protocol

    from ..dma import Device
    from .backend import Backend
    from .monitor import Monitor
    from .region_registry import RegionRegistry
    from .spawn import SoftwareDpu

    class Closable(Protocol):
        """Session as far as these functions need it: session.Session, which imports them."""

        def close(self) -> None: ...


__all__ = ["close", "close_at_exit", "close_forgotten", "open_sessions"]

#: The sessions of this process that are not closed: of type session.Session.
open_sessions = LiveSet()


def close(
    backend: Backend,
    device: Device,
    registry: RegionRegistry,
    monitors: set[Monitor],
    owned: SoftwareDpu | None,
    timeout: float,
) -> None:
    """Free everything of a session; an error in one step does not skip the others."""
    link = backend.link
    with contextlib.ExitStack() as last_to_first:
        last_to_first.push(registry.on_session_closed)
        last_to_first.callback(device.close)
        registry.free_all(last_to_first)
        last_to_first.callback(backend.close)
        if owned is not None:
            last_to_first.callback(owned.close)
        last_to_first.callback(link.close)
        for monitor in list(monitors):
            monitor.close()
        if owned is None and link.dead is None:
            with contextlib.suppress(PeerError):  # gone or stuck: it frees everything by itself
                link.ask(Bye, timeout=min(timeout, 1.0))


def close_forgotten(session: Closable) -> None:
    """Warn that a session was not closed, and close it."""
    try:
        warnings.warn(f"{session!r} was not closed", ResourceWarning, source=session, stacklevel=3)
    finally:
        session.close()


def _abandon_all() -> None:
    for session in open_sessions:
        session.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def close_at_exit() -> None:
    """Have the open sessions closed at the exit of the process, before their devices.

    Exit functions run in reverse order of registration, so a session calls this once its device is
    open.
    """
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in [session for session in open_sessions if not session.closed]:
        with contextlib.suppress(DgkitError):
            close_forgotten(session)
