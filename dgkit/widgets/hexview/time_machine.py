# SPDX-License-Identifier: Apache-2.0
"""The past of the bytes in a hex view: as they were at each of the session's last writes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import ClosedError, DgkitError
from ...units import parse_size, plural, size_text
from ...validate import whole
from ..base import scheduler
from ..base.panel import handler
from .view_pages import Page
from .write_history import MAX_ARRAY, OUTSIDE, UNKNOWN, WriteHistory, record_writes

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from ..base.page_input import Json
    from .fetch import Reader
    from .selection import RegionSelection

# Numbered as in time_machine.js.
WRITERS = ("", "host", "DPU", "kernel", "client", OUTSIDE, UNKNOWN)
_WROTE = {"host": ("DPU", ", bytes from the host"), "client": ("DPU", ", bytes from the client")}
_LEAST = 1 << 12  # bytes
_NEWS_S = 0.1  # between two messages about new writes
_TRIES = 5  # reads of a region that changes, before its history begins


class TimeMachine:
    """History of the region shown, from when the view first shows it; off without a budget.

    Attributes:
        at: The moment shown; None: now.
        budget: Bytes of memory; None: no history.
    """

    def __init__(
        self,
        selection: RegionSelection,
        reader: Reader,
        sources: Callable[[], Sequence[str]],
        budget: int | str | None,
        send: Callable[[str, Callable[[], Json]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Create it; begin() starts the history.

        Args:
            selection: The region shown.
            reader: Reads the bytes.
            sources: Returns the names of the shown sources.
            budget: Bytes of memory, or a size such as "64M"; None: no history.
            send: Sends a part of the state to the views.
            fail: Shows an unexpected error.
        """
        self._selection, self._reader, self._sources = selection, reader, sources
        self.budget = None if budget is None else _budget_bytes(budget)
        self._send, self._fail = send, fail
        self._history: WriteHistory | None = None
        self._region_id = 0
        self._stop: Callable[[], None] = _nothing
        self._why = ""
        self._kernels = 0
        self._news: scheduler.Task | None = None
        self.at: int | None = None

    @property
    def _session(self) -> Session:
        return self._selection.session

    def assign(self, budget: int | str | None) -> None:
        """Discard the history, and begin one of another size, or none.

        Raises:
            TypeError, ValueError: The budget is no size, or too small.
        """
        self.budget = None if budget is None else _budget_bytes(budget)
        self.end()
        self.begin()

    def begin(self) -> None:
        """Begin the history of the region shown, unless it has begun."""
        region = None if self.budget is None else self._selection.current()
        number = region.id if region is not None else 0
        if number == self._region_id:
            return
        self.end()
        self._region_id = number
        if region is not None:
            try:
                self._begin(region)
            except (DgkitError, ValueError) as error:
                self.end()
                self._region_id, self._why = number, str(error)

    def _begin(self, region: SessionRegion) -> None:
        """Follow the writes to a region, then read it, until no write was in flight meanwhile.

        A region that takes more than half of the memory is not read.
        """
        assert self.budget is not None
        for _ in range(_TRIES):
            self._stop()
            if 2 * region.size > self.budget:
                history = WriteHistory(region.size, self.budget)
                self._stop = record_writes(self._session, region, history, self._announce)
                break
            data = self._read(region)
            history = WriteHistory(data, self.budget)
            self._stop = record_writes(self._session, region, history, self._announce)
            since = time.monotonic_ns()
            if self._read(region) == data and history.observe(0, data, since):
                break
        self._history = history
        self._kernels = self._kernel_operations(region)

    def _read(self, region: SessionRegion) -> bytes:
        return self._reader.read(region, self._sources()[:1], 0, region.size)[0]

    def end(self) -> None:
        """End the history and free its memory."""
        self._stop()
        self._stop, self._history, self._region_id = _nothing, None, 0
        self._why, self.at = "", None

    def state(self) -> Json | None:
        """Return the range of moments, the moment shown and its write; None without a history."""
        if self.budget is None:
            return None
        history = self._history
        state: Json = {"why": self._why, "first": 0, "last": 0, "at": None}
        state |= {"text": "", "span": None}
        if history is None:
            return state
        moment = history.last if self.at is None else self.at
        write = history.write(moment)
        span = None if write is None else [write.offset, write.offset + write.size]
        return state | {
            "first": history.first, "last": history.last, "at": self.at, "span": span,
            "text": self._moment_text(history, moment),
        }  # fmt: skip

    def _moment_text(self, history: WriteHistory, moment: int) -> str:
        write = history.write(moment)
        if write is None and moment == 0:
            return f"Before the first write. {self._kept_text(history)}"
        if write is None:
            return f"Before the oldest write that is kept. {self._kept_text(history)}"
        bytes_, clock = f"{plural(write.size, 'byte')} at {write.offset:#x}", _clock(write.t_ns)
        who, whose = _WROTE.get(write.writer, (write.writer, ""))
        text = f"{moment:,} of {history.last:,}: {who} wrote {bytes_}{whose}, at {clock}"
        if write.number:
            return f"{text}, transfer {write.number:,}."
        if write.writer == "kernel":
            return f"{text} or before: found when the bytes were read."
        return (
            f"{moment:,} of {history.last:,}: {bytes_} changed outside of the session's "
            f"transfers; found at {clock}."
        )

    def _kept_text(self, history: WriteHistory) -> str:
        kept = f"{plural(history.last - history.first, 'write')} kept"
        fallen = f", {plural(history.first, 'older one')} fell out" if history.first else ""
        region, budget = self._selection.current(), self.budget or 0
        partly = region is not None and 2 * region.size > budget
        unknown = " Bytes that no view showed before their write are ··." if partly else ""
        if history.left_out:
            unknown += f" Arrays over {size_text(MAX_ARRAY)} are not kept; bytes objects are."
        return f"{kept}{fallen}; limit {size_text(budget)}.{unknown}"

    def apply(self, page: Page) -> Page:
        """Record a page that was read in the history, and return the page of the moment shown."""
        region, history = self._selection.current(), self._history
        if history is None or region is None or page.region != self._region_id:
            return page
        self._observe(history, region, page)
        n = len(page.parts[0])
        with history.lock:
            moment = max(history.first, history.last if self.at is None else self.at)
            past, write = history.at(moment, page.at, n), history.write(moment)
        hues = b"".join(bytes([WRITERS.index(writer)]) * size for size, writer in past.writers)
        if self.at is None:
            hues = hues.replace(bytes([WRITERS.index(UNKNOWN)]), b"\0")
            return Page(page.region, page.at, page.parts, page.flags, hues=hues)
        self.at = moment  # those before fell out
        flags = b"" if write is None else _flags(page.at, n, write.offset, write.size)
        return Page(page.region, page.at, [past.data] * len(page.parts), flags, hues=hues)

    def _observe(self, history: WriteHistory, region: SessionRegion, page: Page) -> None:
        """Record bytes that no write of the session explains: a kernel's, or changed outside."""
        before = history.last
        kernels = self._kernel_operations(region)
        writer = OUTSIDE if kernels == self._kernels else "kernel"
        if history.observe(page.at, page.parts[0], page.since_ns, writer):
            self._kernels = kernels
        if history.last != before:
            self._announce()

    def _kernel_operations(self, region: SessionRegion) -> int:
        """Return how many operations the open GPU queues of a region have completed."""
        count = 0
        for queue in self._session.lifetime.gpu_queues:
            with contextlib.suppress(ClosedError):
                count += queue.completed if queue.uses(region) else 0
        return count

    @handler
    def moment(self, to: int | None) -> None:
        """Show the bytes as they were after `to` writes; None: as they are.

        Raises:
            ValueError: The moment is not kept, or there is no history.
        """
        history = self._require()
        if to is not None:
            history.at(whole("moment", to), 0, 0)
        self.at = to
        self._send("history", self._about)

    @handler
    def last_write(self, at: int) -> dict[str, int]:
        """Show the moment of the last write to a byte, up to the moment shown.

        Returns:
            The moment; 0 if no write to the byte is kept.
        """
        history = self._require()
        found = history.moment_of(history.last if self.at is None else self.at, int(at))
        if found:
            self.moment(found)
        return {"moment": found}

    def _require(self) -> WriteHistory:
        if self._history is None:
            raise ValueError(self._why or "the view has no history: set its `history`, as to '64M'")
        return self._history

    def _about(self) -> Json:
        return {"history": self.state()}

    def _announce(self) -> None:
        """Have the frame thread send the new moments, soon."""
        if self._news is None or self._news.done:
            self._news = scheduler.start(self._send_state_later(), self._fail)

    def _send_state_later(self) -> scheduler.Steps:
        yield time.monotonic() + _NEWS_S
        self._news = None
        self._send("history", self._about)


def _budget_bytes(budget: int | str) -> int:
    if isinstance(budget, str):
        return parse_size(budget, least=_LEAST)
    return whole("history", budget, _LEAST)


def _flags(at: int, n: int, offset: int, size: int) -> bytes:
    """Return a flag for each of `n` bytes from `at` on: changed if the write covers the byte."""
    before = min(n, max(0, offset - at))
    changed = max(0, min(n, offset + size - at) - before)
    return bytes(before) + b"\3" * changed + bytes(n - before - changed)


def _clock(t_ns: int) -> str:
    """Return a time of day with microseconds."""
    seconds, rest = divmod(t_ns, 1_000_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:06}"


def _nothing() -> None:
    """Do nothing: no writes are followed."""
