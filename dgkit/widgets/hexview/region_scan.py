# SPDX-License-Identifier: Apache-2.0
"""Base class of the overview and the image, which read much of the shown region."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from ...errors import ClosedError, DgkitError
from ..base import scheduler
from ..base.panel import Viewers

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Reader

_PAUSE_S = 0.5  # between a scan and the next automatic one

T = TypeVar("T")  # what a scan finds
Key = tuple[int, str]  # the region's id, and the source of the bytes
Read = Callable[[int, int], Generator[bool, None, bytes]]  # reads (offset, size), in steps


class ShownBytes(NamedTuple):
    """Sources of the bytes that a panel shows, and whether it shows changes live.

    Attributes:
        reader: Reads the bytes.
        region: Returns the shown region.
        sources: Returns the names of the shown sources; the first is read.
        live: Returns whether live viewing is on.
        send: Sends a message to all views.
        failed: Called with an unexpected error.
    """

    reader: Reader
    region: Callable[[], SessionRegion | None]
    sources: Callable[[], Sequence[str]]
    live: Callable[[], bool]
    send: Callable[..., None]
    failed: Callable[[Exception], None]


class RegionScan(ABC, Generic[T]):
    """Scan of the shown region on the frame thread, for all views of a panel.

    The region is scanned for visible views: on request, when a panel wrote to the region, and every
    `live_s` seconds while live viewing is on. Views are sent messages of the kind `kind`;
    thread-safe.
    """

    kind: ClassVar[str]
    live_s: ClassVar[float]

    def __init__(self, shown: ShownBytes) -> None:
        """Create the scan; nothing is read until a view requests it."""
        self._reader, self._region, self._sources = shown.reader, shown.region, shown.sources
        self._live, self._send, self._failed = shown.live, shown.send, shown.failed
        self._viewers = Viewers()
        self._lock = threading.Lock()  # guards _wanted, _running and _task
        self._wanted = self._urgent = self._running = False
        self._task: scheduler.Task | None = None
        self._sent: object = None  # what views were sent last

    @abstractmethod
    def _scan(self, region: SessionRegion, read: Read) -> Generator[bool, None, T]:
        """Read in bounded chunks, yielding in between, and return what was found."""

    @abstractmethod
    def _report(self, key: Key, size: int, found: T, asked: bool) -> None:
        """Send what was found in a region of `size` bytes, if it is new or was asked for."""

    def _wanted_now(self) -> bool:
        """Return whether there is anything to scan for."""
        return True

    def request(self, view: str) -> None:
        """Scan for a view that is visible."""
        self._viewers.update(view, True)
        self._start(urgent=True)

    def renew(self, *, urgent: bool = False) -> None:
        """Scan again if a view is visible; with `urgent` at once, else after a pause."""
        if self._viewers.any_recent():
            self._start(urgent=urgent)

    def set_visible(self, view: str, on: bool) -> None:
        """Record that a view is visible or hidden."""
        self._viewers.update(view, on)

    def reset(self) -> None:
        """Discard all results: the region was replaced or freed."""
        self._sent = None
        self.renew(urgent=True)

    def end(self) -> None:
        """End the scan."""
        with self._lock:
            task, self._running = self._task, False
        if task is not None:
            task.cancel()

    def _start(self, *, urgent: bool) -> None:
        if not self._wanted_now():
            return
        with self._lock:
            self._wanted = True
            self._urgent = self._urgent or urgent
            if not self._running:
                self._running = True
                self._task = scheduler.start(self._steps(), self._fail)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._running = False
        self._failed(error)

    def _is_due(self, scanned: float) -> bool | None:
        """Return True to scan now, None to check again later, and False to end the task."""
        passed = time.monotonic() - scanned
        live = self._live() and self._wanted_now()
        with self._lock:
            if self._wanted and (self._urgent or passed >= _PAUSE_S):
                return True
            if self._wanted or (live and passed < self.live_s):
                return None
            self._running = bool(live and self._viewers.due())
            return self._running

    def _steps(self) -> scheduler.Steps:
        again: bool | None = True
        while again:
            with self._lock:
                asked, self._wanted, self._urgent = self._wanted, False, False
            yield from self._scan_once(asked)
            scanned = time.monotonic()
            while (again := self._is_due(scanned)) is None:
                yield

    def _scan_once(self, asked: bool) -> scheduler.Steps:
        region, sources = self._region(), self._sources()[:1]
        if region is None:
            return
        key = (region.id, sources[0])
        try:
            found = yield from self._scan(region, lambda at, n: self._read(region, sources, at, n))
        except ClosedError:  # the region is being freed; the session reports that
            return
        except DgkitError as error:
            self._sent = None
            self._send(self.kind, region=region.id, error=str(error))
            return
        now = self._region()
        if now is None or (now.id, self._sources()[0]) != key:
            self._wanted = now is not None
            return
        self._report(key, region.size, found, asked)

    def _read(
        self, region: SessionRegion, sources: Sequence[str], at: int, size: int
    ) -> Generator[bool, None, bytes]:
        fetch = self._reader.start(region, sources, at, size)
        try:
            return (yield from fetch.steps())[0]
        finally:
            self._reader.abandon(fetch)
