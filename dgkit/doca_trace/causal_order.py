# SPDX-License-Identifier: Apache-2.0
"""Order of the calls of traces that are replayed at the same time.

What the traces tell of it: on one machine, whose clock all of them have, which call had ended when
another began. Between machines, that a descriptor was exported before it was imported, and that
what was exported lasted until its importer no longer used it.
"""

from __future__ import annotations

import mmap
import struct
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .trace_file import Call, Trace

_WAIT_S, _START_S = 5.0, 15.0  # without a call of the other side; before its first one
_IDLE_S = 0.05  # then progress is made while waiting: the other side may need it
_ENDS = ("doca_mmap_stop", "doca_mmap_destroy", "doca_sync_event_stop", "doca_sync_event_destroy")
_COUNT = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class Requirement:
    """Before call `index` of a trace, `count` calls of the trace `other` have to be done."""

    index: int
    other: int
    count: int


def requirements(traces: Sequence[Trace]) -> list[list[Requirement]]:
    """Return for each trace what its calls have to wait for, in their order."""
    found: list[list[Requirement]] = [[] for _ in traces]
    for index, trace in enumerate(traces):
        for number, other in enumerate(traces):
            if number != index:
                found[index] += (_by_time if _one_clock(trace, other) else _by_descriptors)(
                    trace, other, number
                )
        found[index].sort(key=lambda requirement: requirement.index)
    return found


def _one_clock(trace: Trace, other: Trace) -> bool:
    boot = trace.header.get("boot")
    return bool(boot) and boot == other.header.get("boot")


def _by_time(trace: Trace, other: Trace, number: int) -> list[Requirement]:
    offset = trace.start_ns - other.start_ns
    ends = [call.start_ns + call.took_ns for call in other.calls]
    found, before = [], 0
    for index, call in enumerate(trace.calls):
        count = bisect_left(ends, call.start_ns + offset)
        if count > before:
            found.append(Requirement(index, number, count))
            before = count
    return found


def _by_descriptors(trace: Trace, other: Trace, number: int) -> list[Requirement]:
    exported, imported = _descriptors(other, "B"), _descriptors(trace, "b")
    found = [
        Requirement(index, number, exported[blob][0] + 1)
        for blob, (index, _) in imported.items()
        if blob in exported
    ]
    own, used = _descriptors(trace, "B"), _descriptors(other, "b")
    owners: dict[Any, list[int]] = defaultdict(list)  # calls that end what was exported
    for index, call in enumerate(trace.calls):
        if call.name in _ENDS and call.arguments:
            owners[call.arguments[0]].append(index)
    uses = {value: i for i, call in enumerate(other.calls) for value in call.arguments}
    connected = -1
    for blob, (index, call) in used.items():
        if blob not in own:
            continue
        if call.name == "doca_rdma_connect":
            connected = max(connected, index)
            continue
        last = uses.get(call.outputs[0], 0) if call.outputs else 0
        ends = owners[own[blob][1].arguments[0]]
        found += [Requirement(end, number, last + 1) for end in ends]
    if connected >= 0:
        found += _until_the_end(trace, other, number, connected)
    return found


def _descriptors(trace: Trace, kind: str) -> dict[Any, tuple[int, Call]]:
    """Return the first call, and its index, that returns or takes each descriptor."""
    found: dict[Any, tuple[int, Call]] = {}
    for index, call in enumerate(trace.calls):
        if call.function is None:
            continue
        for blob in call.values_of(kind):
            found.setdefault(blob, (index, call))
    return found


def _until_the_end(trace: Trace, other: Trace, number: int, connected: int) -> list[Requirement]:
    """Return that contexts stop when the other side has used its connections, or seen their end.

    Args:
        trace: The trace whose contexts stop.
        other: The other side's.
        number: Its index.
        connected: Index of its last call that connected.
    """
    later = range(connected, len(other.calls))
    count = next((i for i in later if _ends_connections(other.calls[i])), len(other.calls) - 1)
    return [
        Requirement(index, number, count)
        for index, call in enumerate(trace.calls)
        if call.name == "doca_ctx_stop"
    ]


def _ends_connections(call: Call) -> bool:
    return call.name == "doca_ctx_stop" or any(
        callback.function.name == "doca_rdma_connection_disconnection_cb_t"
        for callback in call.callbacks
    )


class Gate:
    """Has a replay wait for others. Each replay counts its calls in a file that all map.

    Args:
        path: The file, with a count of 8 bytes for each trace.
        index: This replay's count.
        waits: What its calls wait for.
        progress: Called while it waits for longer.
    """

    def __init__(
        self, path: Path, index: int, waits: list[Requirement], progress: Callable[[], object]
    ) -> None:
        with path.open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), 0)
        self._index, self._waits, self._progress = index, waits[::-1], progress

    def wait(self, index: int) -> None:
        """Wait for the other side's calls that this one needs; give up after 5 s without any."""
        while self._waits and self._waits[-1].index <= index:
            wait = self._waits.pop()
            start, seen = time.monotonic(), self._count(wait.other)
            while (count := self._count(wait.other)) < wait.count:
                if count != seen:
                    start, seen = time.monotonic(), count
                waited = time.monotonic() - start
                if waited > (_WAIT_S if count else _START_S):
                    break
                if waited > _IDLE_S:
                    self._progress()
                time.sleep(0.0002)

    def _count(self, index: int) -> int:
        count: int = _COUNT.unpack_from(self._counts, _COUNT.size * index)[0]
        return count

    def done(self, count: int) -> None:
        """Tell the others how many calls are done."""
        _COUNT.pack_into(self._counts, _COUNT.size * self._index, count)
