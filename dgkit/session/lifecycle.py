"""End of a session: by close(), in a forked child, or at the exit of the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from _thread import LockType, allocate_lock, start_new_thread
from typing import TYPE_CHECKING

from ..errors import DgkitError, PeerError
from ..live_set import LiveSet
from ..wire.messages import Bye

if TYPE_CHECKING:
    from .monitor import Monitor
    from .region_factory import RegionRegistry
    from .session import Session
    from .session_gpu_queue import SessionGpuQueue
    from .sides import Sides

open_sessions: LiveSet[Session] = LiveSet()
_ends: list[LockType] = []  # locked while a thread closes a forgotten session
_END_S = 5.0  # time that exit waits for each of them


class Lifetime:
    """Resources that a session frees at its end, and whether it has ended. Thread-safe.

    Attributes:
        closed: Whether the session was closed.
        monitors: Its open monitors.
        gpu_queues: Its GPU queues.
    """

    def __init__(self, sides: Sides, registry: RegionRegistry) -> None:
        self.closed = False
        self.monitors: LiveSet[Monitor] = LiveSet()
        self.gpu_queues: LiveSet[SessionGpuQueue] = LiveSet()
        self._sides = sides
        self._registry = registry
        self._closer: dict[str, int] = {}  # the thread that closes the session

    def close(self) -> bool:
        """Free everything as Session.close() does; return False if closed or being closed."""
        me = threading.get_ident()
        try:
            if self.closed or self._closer.setdefault("thread", me) != me:
                return False  # closed, or another thread is closing it
            self.closed = True
            self._free()
        except Exception:
            raise  # all other steps were done
        except BaseException:  # Ctrl-C: the next close() does the remaining steps
            if self._closer.get("thread") == me:
                self.closed = False
                self._closer.clear()
            raise
        return True

    def _free(self) -> None:
        """Free everything; an error in one step does not skip the others."""
        sides = self._sides
        with contextlib.ExitStack() as last_to_first:
            last_to_first.push(self._registry.on_session_closed)
            last_to_first.callback(sides.device.close)
            self._registry.free_all(last_to_first)
            self._free_link(last_to_first)

    def _free_link(self, last_to_first: contextlib.ExitStack) -> None:
        """Register the freeing of all that uses the connection, and of the software DPU."""
        sides = self._sides
        last_to_first.callback(sides.dpu.close)
        if sides.owned is not None:
            last_to_first.callback(sides.owned.close)
        last_to_first.callback(sides.dpu.link.close)
        last_to_first.callback(self._leave)
        for queue in self.gpu_queues:
            last_to_first.callback(queue.close)

    def replaced(self) -> None:
        """Free the lost other side and the device; the regions belong to the sides in its place."""
        with contextlib.ExitStack() as last_to_first:
            last_to_first.callback(self._sides.device.close)
            self._free_link(last_to_first)
        self.closed = True

    def _leave(self) -> None:
        """Close the monitors, and send Bye to an agent that outlives the session."""
        sides, link = self._sides, self._sides.dpu.link
        for monitor in self.monitors:
            monitor.close()
        if (sides.owned is None or link.has_undone) and link.dead is None:
            with contextlib.suppress(PeerError):  # a lost or stuck agent frees everything itself
                link.ask(Bye(), timeout=min(sides.timeout, 1.0))

    def abandon(self) -> None:
        """Detach in a forked child: the parent owns the connection and the software DPU."""
        self.closed = True
        self._sides.dpu.link.abandon()
        for monitor in self.monitors:
            monitor.abandon()
        if self._sides.owned is not None:
            self._sides.owned.abandon()


def _warn(session: Session) -> None:
    warnings.warn(f"{session!r} was not closed", ResourceWarning, source=session, stacklevel=4)


def close_forgotten(session: Session, lifetime: Lifetime) -> None:
    """Warn that a session was not closed, and have a thread close it: a finalizer never waits."""
    try:
        _warn(session)
    finally:
        end = allocate_lock()
        end.acquire()
        _ends.append(end)
        # Not threading.Thread: the code that the finalizer interrupts may hold its locks.
        start_new_thread(_close_and_note, (lifetime, end))


def _close_and_note(lifetime: Lifetime, end: LockType) -> None:
    try:
        lifetime.close()
    finally:
        _ends.remove(end)
        end.release()


def _abandon_all() -> None:
    _ends.clear()
    for session in open_sessions:
        session.lifetime.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def close_at_exit() -> None:
    """Arrange for the open sessions to be closed at exit, before their devices.

    Exit functions run in reverse order of registration, so a session calls this after opening its
    device.
    """
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in [session for session in open_sessions if not session.closed]:
        with contextlib.suppress(DgkitError):
            try:
                _warn(session)
            finally:
                session.close()
    for end in list(_ends):
        end.acquire(timeout=_END_S)
