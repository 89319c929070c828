"""End of a client's monitor: requested by the loop or a worker, executed by its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import SerialWorker


class MonitorEnd:
    """End of one monitor, with the callbacks to run once its resources are freed. Thread-safe.

    Attributes:
        region: Handle of the region that the monitor measures.
    """

    def __init__(self, region: int, worker: SerialWorker) -> None:
        self.region = region
        self._worker = worker
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._reason: Exception | None = None
        self._on_end: list[Callable[[], None]] = []

    def end(
        self, *, reason: Exception | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Ask the thread to end, without waiting for it.

        Args:
            reason: Error that the client receives as the reason.
            on_end: Called once everything is freed.
        """
        with self._lock:
            self._reason = self._reason or reason
            if on_end is not None and not self._ended:
                self._on_end.append(on_end)
                on_end = None
        self._requested.set()
        if on_end is not None:
            on_end()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return False if it has not within `timeout` seconds."""
        return self._worker.join(timeout)

    def requested_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for end(); return whether it was called."""
        return self._requested.wait(seconds)

    def reached(self) -> Exception | None:
        """Record that the thread has stopped sampling; return the reason given to end()."""
        with self._lock:
            self._ended = True
            return self._reason

    def notify(self) -> None:
        """Run the callbacks of end(), after everything is freed."""
        for on_end in self._on_end:
            on_end()
