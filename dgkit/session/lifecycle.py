# SPDX-License-Identifier: Apache-2.0
"""End of a session: by close(), in a forked child, at the exit of the process, or when forgotten.

A cell that is run again calls close(); see dgkit/cell_lifetime.py. The loss of the agent does not
end a session: restart() replaces its resources.
"""

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
    from .resources import SessionResources
    from .session import Session
    from .session_gpu_queue import SessionGpuQueue
    from .session_region import RegionRegistry

open_sessions: LiveSet[Session] = LiveSet()
_closing: list[LockType] = []  # locked while a thread closes a forgotten session
_CLOSE_S = 5.0  # time that exit waits for each of them


class Lifetime:
    """Resources that a session frees at its end, and whether it has ended. Thread-safe.

    Attributes:
        closed: Whether the session was closed.
        monitors: Its open monitors.
        gpu_queues: Its GPU queues.
    """

    def __init__(self, resources: SessionResources, registry: RegionRegistry) -> None:
        self.closed = False
        self.monitors: LiveSet[Monitor] = LiveSet()
        self.gpu_queues: LiveSet[SessionGpuQueue] = LiveSet()
        self._resources = resources
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
        except BaseException:  # the next close() does the remaining steps
            if self._closer.get("thread") == me:
                self.closed = False
                self._closer.clear()
            raise
        return True

    def _free(self) -> None:
        """Free everything; an error in one step does not skip the others."""
        resources = self._resources
        with contextlib.ExitStack() as steps:
            steps.push(self._registry.on_session_closed)
            steps.callback(resources.device.close)
            self._registry.free_all(steps)
            self._register_link_release(steps)

    def _register_link_release(self, steps: contextlib.ExitStack) -> None:
        """Add the steps that release the connection, its users and the software DPU."""
        resources = self._resources
        steps.callback(resources.dpu.close)
        if resources.owned is not None:
            steps.callback(resources.owned.close)
        steps.callback(resources.dpu.link.close)
        steps.callback(self._begin_release)
        for queue in self.gpu_queues:
            steps.callback(queue.close)

    def release_lost(self) -> None:
        """Free everything but the regions, which restart() has moved to the new resources."""
        with contextlib.ExitStack() as steps:
            steps.callback(self._resources.device.close)
            self._register_link_release(steps)
        self.closed = True

    def _begin_release(self) -> None:
        """Close the monitors, and send Bye to an agent that outlives the session."""
        resources, link = self._resources, self._resources.dpu.link
        for monitor in self.monitors:
            monitor.close()
        if (resources.owned is None or link.has_cancels) and link.dead is None:
            with contextlib.suppress(PeerError):  # a lost or stuck agent frees everything itself
                link.ask(Bye(), timeout=min(resources.timeout, 1.0))

    def abandon(self) -> None:
        """Detach in a forked child: the parent owns the connection and the software DPU."""
        self.closed = True
        self._resources.dpu.link.abandon()
        for monitor in self.monitors:
            monitor.abandon()
        if self._resources.owned is not None:
            self._resources.owned.abandon()


def _warn(session: Session) -> None:
    warnings.warn(f"{session!r} was not closed", ResourceWarning, source=session, stacklevel=4)


def close_forgotten(session: Session, lifetime: Lifetime) -> None:
    """Warn that a session was not closed, and close it in a thread: a finalizer must not wait."""
    try:
        _warn(session)
    finally:
        closed = allocate_lock()
        closed.acquire()
        _closing.append(closed)
        # Not threading.Thread: the code that the finalizer interrupts may hold its locks.
        start_new_thread(_close_in_thread, (lifetime, closed))


def _close_in_thread(lifetime: Lifetime, closed: LockType) -> None:
    """Close the session, then release the lock, for which _close_all() waits."""
    try:
        lifetime.close()
    finally:
        _closing.remove(closed)
        closed.release()


def _abandon_all() -> None:
    _closing.clear()
    for session in open_sessions:
        session.lifetime.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def close_at_exit() -> None:
    """Close the open sessions at exit, before their devices; call this after opening a device."""
    # Exit functions run in reverse order of registration.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in [session for session in open_sessions if not session.closed]:
        with contextlib.suppress(DgkitError):
            try:
                _warn(session)
            finally:
                session.close()
    for closed in list(_closing):
        closed.acquire(timeout=_CLOSE_S)
