"""The kernel's event loop, on which traits change and observers are called."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from .scheduler import BACKGROUND, FRAMES

_loops: list[asyncio.AbstractEventLoop] = []  # the loop on which the latest panel was created


def in_own_thread() -> bool:
    """Return whether this is a panel's own thread, which must not wait or call observers."""
    return threading.current_thread().name in (FRAMES, BACKGROUND)


class Later:
    """A call that runs at once, or, from dgkit's own threads, later on the kernel's event loop.

    The loop runs it when the running cell has ended; calls until then are merged into one.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._due: asyncio.AbstractEventLoop | None = None
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(RuntimeError):  # not in a kernel
                _loops[:] = [asyncio.get_running_loop()]

    def __call__(self) -> None:
        """Run the call, or schedule it on the kernel's loop."""
        loop = next((loop for loop in _loops if loop.is_running()), None)
        if loop is None or not in_own_thread():
            self._run()
        elif loop is not self._due:
            self._due = loop
            with contextlib.suppress(RuntimeError):  # the kernel is ending
                loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._due = None  # first: a change during the call causes another call
        self._call()
