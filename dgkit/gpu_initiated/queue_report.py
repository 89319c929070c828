# SPDX-License-Identifier: Apache-2.0
"""Report of a queue pair of the software NIC: its entries decoded, and who is ahead of whom."""

from __future__ import annotations

from dataclasses import dataclass

from .mlx5 import CompletionEntry, WorkEntry, decode_cqe, decode_wqe

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dma.nic import VerbsQueue, VerbsQueueInfo

_SHOWN = 16  # entries and completions before the newest that a report shows
_BLOCKS = 4  # 16-byte segments in 64 bytes
ENTRY_COLUMNS = (
    "number", "state", "operation", "bytes", "local address", "lkey", "remote address", "rkey",
    "flags",
)  # fmt: skip
COMPLETION_COLUMNS = ("entry", "kind", "bytes", "error")


@dataclass(frozen=True, slots=True)
class SentEntry:
    """Work queue entry with its place in the order of execution.

    Attributes:
        number: Number of its first 64 bytes since the queue pair was connected.
        entry: The decoded entry.
        state: "complete", "running", "waiting" (announced by the doorbell, not taken) or "failed".
    """

    number: int
    entry: WorkEntry
    state: str


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Decoded content of a queue pair at one moment. Created by `queue_report`.

    Attributes:
        qpn: Number of the queue pair.
        provider: Provider that moves the bytes.
        info: State and counts.
        entries: The newest work queue entries, oldest first.
        completions: The newest completions of the send queue, oldest first, then those of the
            receive queue.
    """

    qpn: int
    provider: str
    info: VerbsQueueInfo
    entries: tuple[SentEntry, ...]
    completions: tuple[CompletionEntry, ...]

    def __str__(self) -> str:
        lines = [f"queue pair {self.qpn:#x}, {self.info.state}", *self.counts()]
        lines += self._error_lines()
        lines += ["entries:", *(f"  {e.state:8} {e.entry}" for e in self.entries)]
        lines += ["completions:", *(f"  {c}" for c in self.completions)]
        return "\n".join(lines)

    __repr__ = __str__

    def counts(self) -> list[str]:
        """Return sentences about the doorbell, the NIC and the receives."""
        info = self.info
        ahead = info.producer - info.taken
        counts = f"doorbell {info.producer:,}, taken {info.taken:,}, complete {info.completed:,}"
        polled = "" if info.polled is None else f", polled {info.polled:,}"
        lines = [f"{counts}, completions written {info.completions:,}{polled}"]
        if ahead:
            what = f"waits for {info.waiting}" if info.waiting else "has not taken them"
            lines.append(f"the GPU is {ahead:,} entries ahead of the NIC, which {what}")
        if info.posted_receives:
            lines.append(f"receives: {info.posted_receives:,} posted, {info.received:,} complete")
        return lines

    def _error_lines(self) -> list[str]:
        return [f"error: {self.info.why}"] if self.info.why else []

    def entry_rows(self) -> list[tuple[str, ...]]:
        """Return the entries as rows of a table, see `ENTRY_COLUMNS`."""
        return [(f"{e.number:,}", e.state, *_columns(e.entry)) for e in self.entries]

    def completion_rows(self) -> list[tuple[str, ...]]:
        """Return the completions as rows of a table, see `COMPLETION_COLUMNS`."""
        return [
            (str(c.index), c.name, f"{c.size:,}" if c.size else "", _error(c))
            for c in self.completions
        ]

    def _repr_html_(self) -> str:
        from ..html_cards import Html, badge, card, provider_badge, table

        sent = table("Work queue entries, oldest first", ENTRY_COLUMNS, self.entry_rows())
        completed = table("Completions, oldest first", COMPLETION_COLUMNS, self.completion_rows())
        failed = self.info.state == "error"
        first, *rest = self.counts()
        if not failed:
            rest += self._error_lines()
        return card(
            f"Queue pair {self.qpn:#x}",
            [("state", badge(self.info.state, warn=failed)), ("counts", first),
             *(("", line) for line in rest)],
            badge=provider_badge(self.provider), body=Html(sent + completed),
            note=self.info.why if failed else "",
        )  # fmt: skip


def _columns(entry: WorkEntry) -> tuple[str, ...]:
    """Return operation, bytes, addresses and keys of both sides, and flags."""
    size = f"{sum(piece.size for piece in entry.data):,}" if entry.data else ""
    places = [p for p in entry.data if p.address is not None]
    local = "; ".join(f"{p.address:#x}" for p in places) or ("inline" if entry.data else "")
    lkey = "; ".join(dict.fromkeys(f"{p.key:#x}" for p in places))
    remote, rkey = (f"{part:#x}" for part in entry.remote) if entry.remote else ("", "")
    words = [word for word, yes in (("signaled", entry.signaled), ("fence", entry.fence)) if yes]
    if entry.immediate is not None:
        words.append(f"immediate {entry.immediate:#x}")
    return _operation(entry), size, local, lkey, remote, rkey, ", ".join(words)


def _operation(entry: WorkEntry) -> str:
    """Return the name of an operation with its operand."""
    if not entry.operands:
        return entry.name
    first, second = entry.operands
    if entry.name == "WAIT":
        return f"WAIT for completion {first:,} of {second:#x}"
    return f"{entry.name} {first:,}"


def _error(completion: CompletionEntry) -> str:
    error = completion.error
    return "" if error is None else f"{error} ({completion.syndrome:#04x})"


def queue_report(queue: VerbsQueue) -> QueueReport:
    """Decode the newest entries and completions of a queue pair.

    A kernel may post while this reads: an entry that is being written can appear half new.

    Args:
        queue: Open queue pair of `dgkit.Device.nic`.

    Raises:
        ClosedError: The queue pair is closed.
    """
    info = queue.info()
    completions = _newest(queue.completions(), info.completions)
    if queue.config.receives:
        completions += _newest(queue.completions(receives=True), info.received)
    entries = tuple(_sent(queue.entries(), info, completions))
    return QueueReport(queue.number, queue.nic.device.provider, info, entries, completions)


def _newest(ring: Sequence[bytes], count: int) -> tuple[CompletionEntry, ...]:
    first = max(0, count - min(_SHOWN, len(ring)))
    return tuple(decode_cqe(ring[i % len(ring)]) for i in range(first, count))


def _sent(
    ring: Sequence[bytes], info: VerbsQueueInfo, completions: Sequence[CompletionEntry]
) -> list[SentEntry]:
    """Return the newest entries; an entry of several 64-byte blocks appears once."""
    failed = {c.index for c in completions if c.syndrome is not None}
    end = min(info.producer, info.taken + len(ring))
    number = max(0, end - min(2 * _SHOWN, len(ring)))
    found = []
    while number < end:
        entry = decode_wqe(ring[number % len(ring)])
        state = (
            "failed" if number & 0xFFFF in failed
            else "complete" if number < info.completed
            else "running" if number < info.taken
            else "waiting"
        )  # fmt: skip
        found.append(SentEntry(number, entry, state))
        number += max(1, -(-entry.segments // _BLOCKS))
    return found[-_SHOWN:]
