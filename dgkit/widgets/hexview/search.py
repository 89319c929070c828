"""Search through a whole region, chunk by chunk: for a pattern, or where DPU and host differ."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from .fetch import Fetch

CHUNK = 1 << 20  # bytes searched in one step: a few milliseconds at most
READ_AHEAD = 4  # chunks in flight; a session has as many slots for large data
PROGRESS_S = 0.2  # interval of progress reports
MAX_PATTERN = 4096  # bytes


class Match(NamedTuple):
    """The offset of a match, or -1; `wrapped` if the search continued at the other end."""

    at: int
    wrapped: bool


class Matcher(Protocol):
    """Finds a match within one chunk; it needs `lead` bytes before the chunk, `tail` after it."""

    lead: int
    tail: int

    def find(self, parts: Sequence[bytes], lead: int, backward: bool) -> int:
        """Return the index of the first match (backward: the last), or -1.

        Args:
            parts: The bytes as each source has them, with context before and after the chunk.
            lead: The number of bytes before the chunk.
            backward: Return the last match.
        """


class PatternMatcher:
    """Matches a byte pattern; a match across two chunks belongs to the first."""

    def __init__(self, pattern: bytes) -> None:
        self.pattern, self.lead, self.tail = pattern, 0, len(pattern) - 1
        self._search = re.compile(re.escape(pattern)).search  # twice as fast as bytes.find()

    def find(self, parts: Sequence[bytes], lead: int, backward: bool) -> int:
        """See Matcher."""
        data = parts[0]
        if backward:
            return data.rfind(self.pattern, lead)
        match = self._search(data, lead)
        return -1 if match is None else match.start()


class DifferenceMatcher:
    """Matches the first byte of each run of bytes in which two sources differ.

    With `count` it never matches, and counts the differing `bytes` and the `runs` of them.
    """

    lead, tail = 1, 0

    def __init__(self, *, count: bool = False) -> None:
        self._count = count
        self.bytes = self.runs = 0

    def find(self, parts: Sequence[bytes], lead: int, backward: bool) -> int:
        """See Matcher."""
        first, second = parts
        if first == second:
            return -1
        unequal = np.frombuffer(first, "u1") != np.frombuffer(second, "u1")
        starts = unequal.copy()
        starts[1:] &= ~unequal[:-1]
        if self._count:
            self.bytes += int(unequal[lead:].sum())
            self.runs += int(starts[lead:].sum())
            return -1
        matches = np.flatnonzero(starts[lead:])
        return lead + int(matches[-1 if backward else 0]) if len(matches) else -1


def parse_pattern(text: str, kind: str) -> bytes:
    """Return the bytes to search for.

    Args:
        text: Hex digits, with or without spaces, commas and 0x; or text, encoded as UTF-8.
        kind: "hex" or "text".

    Raises:
        ValueError: The kind is unknown, the digits are invalid, or the pattern is empty or too
            long.
    """
    if kind not in ("hex", "text"):
        raise ValueError(f"a pattern is 'hex' or 'text', not {kind!r}")
    try:
        words = text.replace(",", " ").split()
        digits = "".join(word.removeprefix("0x").removeprefix("0X") for word in words)
        pattern = bytes.fromhex(digits) if kind == "hex" else text.encode()
    except ValueError:
        raise ValueError(f"{text!r} is not hex: use two hex digits per byte, as in 00 ff") from None
    if not 1 <= len(pattern) <= MAX_PATTERN:
        raise ValueError(
            f"the pattern has {len(pattern):,} bytes; it must have 1 to {MAX_PATTERN:,}"
        )
    return pattern


def chunks(
    size: int, start: int, backward: bool, chunk: int = CHUNK
) -> Iterator[tuple[int, int, bool]]:
    """Yield the chunks in which a match may start, in search order.

    Forward: from `start` to the end, then from 0. Backward: down from `start`, then from the end.

    Yields:
        The first offset, the offset after the last, and whether the search has wrapped.
    """
    parts = [(0, start), (start, size)] if backward else [(start, size), (0, start)]
    for wrapped, (low, high) in enumerate(parts):
        if backward:
            for last in range(high, low, -chunk):
                yield max(low, last - chunk), last, bool(wrapped)
        else:
            for first in range(low, high, chunk):
                yield first, min(high, first + chunk), bool(wrapped)


def run_search(
    fetch: Callable[[int, int], Fetch],
    size: int,
    start: int,
    matcher: Matcher,
    *,
    backward: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    chunk: int = CHUNK,
) -> Generator[bool, None, Match]:
    """Search on the frame thread and return the first match.

    Args:
        fetch: Starts a read: fetch(at, size).
        size: The size of the region in bytes.
        start: The offset at which the search starts.
        matcher: Finds a match within one chunk.
        backward: Search towards lower offsets.
        progress: Called with the number of bytes searched, every PROGRESS_S seconds.
        chunk: Bytes per step.
    """
    remaining = chunks(size, start, backward, chunk)
    in_flight: deque[tuple[int, int, bool, Fetch]] = deque()
    done, next_report = 0, time.monotonic() + PROGRESS_S
    try:
        while True:
            while len(in_flight) < READ_AHEAD and (span := next(remaining, None)) is not None:
                low = max(0, span[0] - matcher.lead)
                in_flight.append((*span, fetch(low, min(size, span[1] + matcher.tail) - low)))
            if not in_flight:
                return Match(-1, True)
            first, last, wrapped, piece = in_flight[0]
            parts = yield from piece.steps()
            in_flight.popleft()
            index = matcher.find(parts, first - piece.at, backward)
            if index >= 0:
                return Match(piece.at + index, wrapped)
            done += last - first
            if time.monotonic() >= next_report:
                progress(done)
                next_report = time.monotonic() + PROGRESS_S
            yield True
    finally:
        for *_, piece in in_flight:
            piece.cancel()
