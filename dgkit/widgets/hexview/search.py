"""Looking through a whole region, piece by piece: for a pattern, or for where two views differ."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from .fetch import Fetch

__all__ = ["Differences", "Found", "Pattern", "Probe", "hunt", "parse_pattern", "spans"]

CHUNK = 1 << 20  # searched in one step: some milliseconds at worst
AHEAD = 4  # pieces on their way; a session has as many slots for large data
TOLD_S = 0.2
LONGEST = 4096  # bytes of a pattern


class Found(NamedTuple):
    """Where it is; `wrapped`: only by going on at the other end. `at` is -1 if it is nowhere."""

    at: int
    wrapped: bool


class Probe(Protocol):
    """Looks at one piece. `lead` and `tail`: how many bytes before and after it needs to see."""

    lead: int
    tail: int

    def look(self, found: Sequence[bytes], lead: int, backward: bool) -> int:
        """The first hit (backward: the last) in a piece that begins after `lead` bytes, or -1."""


class Pattern:
    """Hits begin where the bytes are; one that lies across two pieces counts in the first."""

    def __init__(self, pattern: bytes) -> None:
        self.pattern, self.lead, self.tail = pattern, 0, len(pattern) - 1

    def look(self, found: Sequence[bytes], lead: int, backward: bool) -> int:
        """See Probe."""
        data = found[0]
        return data.rfind(self.pattern, lead) if backward else data.find(self.pattern, lead)


class Differences:
    """Hits are the first bytes of each run where two views differ; `bytes` and `runs` add up."""

    lead, tail = 1, 0

    def __init__(self, *, count: bool = False) -> None:
        self._count = count
        self.bytes = self.runs = 0

    def look(self, found: Sequence[bytes], lead: int, backward: bool) -> int:
        """See Probe. To count is to find nothing, everywhere."""
        one, other = found
        if one == other:
            return -1
        unlike = np.frombuffer(one, "u1") != np.frombuffer(other, "u1")
        begins = unlike.copy()
        begins[1:] &= ~unlike[:-1]
        if self._count:
            self.bytes += int(unlike[lead:].sum())
            self.runs += int(begins[lead:].sum())
            return -1
        hits = np.flatnonzero(begins[lead:])
        return lead + int(hits[-1 if backward else 0]) if len(hits) else -1


def parse_pattern(text: str, kind: str) -> bytes:
    """What to look for: `hex` digits with or without blanks and 0x, or `text` as UTF-8.

    ValueError: nothing, too long, or no hex digits.
    """
    if kind not in ("hex", "text"):
        raise ValueError(f"a pattern is 'hex' or 'text', not {kind!r}")
    try:
        words = text.replace(",", " ").split()
        digits = "".join(word.removeprefix("0x").removeprefix("0X") for word in words)
        pattern = bytes.fromhex(digits) if kind == "hex" else text.encode()
    except ValueError:
        raise ValueError(f"{text!r} is no row of bytes: two hex digits each, as in 00 ff") from None
    if not 1 <= len(pattern) <= LONGEST:
        raise ValueError(f"a pattern has 1 to {LONGEST} bytes, not {len(pattern)}")
    return pattern


def spans(
    size: int, start: int, backward: bool, chunk: int = CHUNK
) -> Iterator[tuple[int, int, bool]]:
    """The pieces in which hits may begin: first byte, one past the last, and whether it wrapped.

    Forward from `start` to the end, then from 0; backward from before `start`, then from the end.
    """
    parts = [(0, start), (start, size)] if backward else [(start, size), (0, start)]
    for wrapped, (low, high) in enumerate(parts):
        if backward:
            for last in range(high, low, -chunk):
                yield max(low, last - chunk), last, bool(wrapped)
        else:
            for first in range(low, high, chunk):
                yield first, min(high, first + chunk), bool(wrapped)


def hunt(
    fetch: Callable[[int, int], Fetch],
    size: int,
    start: int,
    probe: Probe,
    *,
    backward: bool = False,
    told: Callable[[int], None] = lambda _: None,
    chunk: int = CHUNK,
) -> Generator[bool, None, Found]:
    """For the frame thread. `fetch(at, size)` starts a read, `told(done)` hears how far it is."""
    todo = spans(size, start, backward, chunk)
    flying: deque[tuple[int, int, bool, Fetch]] = deque()
    done, next_word = 0, time.monotonic() + TOLD_S
    try:
        while True:
            while len(flying) < AHEAD and (span := next(todo, None)) is not None:
                low = max(0, span[0] - probe.lead)
                flying.append((*span, fetch(low, min(size, span[1] + probe.tail) - low)))
            if not flying:
                return Found(-1, True)
            first, last, wrapped, piece = flying[0]
            found = yield from piece.steps()
            flying.popleft()
            hit = probe.look(found, first - piece.at, backward)
            if hit >= 0:
                return Found(piece.at + hit, wrapped)
            done += last - first
            if time.monotonic() >= next_word:
                told(done)
                next_word = time.monotonic() + TOLD_S
            yield True
    finally:
        for *_, piece in flying:
            piece.drop()
