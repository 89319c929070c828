# SPDX-License-Identifier: Apache-2.0
"""Matchers of a search: a pattern, an expression, a value, or a difference of two sources."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from .selection import DTYPES, decode

MAX_PATTERN = 4096  # bytes
MAX_ANY = 64  # bytes of a pattern with a ?: each may be compared at each offset
MAX_MATCH = 256  # bytes that a regular expression matches
_AS_FLOAT = 'values = (values.astype("u4") << 16).view("f4")  # bfloat16 as float32'
MAX_REPEATS = 2  # in a regular expression: it takes up to MAX_MATCH times as long with each
_MOST_S = 1  # for an expression in one chunk, during which no other thread of Python runs
_PLAIN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]", re.DOTALL)  # escapes and sets of one
_LIMIT = f"of any length, not of at most {MAX_MATCH} bytes"
_WINDOW = 4096  # bytes of a backward search: matches are found forward, and the last one counts


class Matcher(Protocol):
    """Finds a match within one chunk; it needs `lead` bytes before the chunk, `tail` after it.

    A match has `length` bytes, and is at a multiple of `step` from the start of the region.
    """

    lead: int
    tail: int
    length: int
    step: int

    def find(self, parts: Sequence[bytes], lead: int, stop: int, backward: bool) -> int:
        """Return the index of the first match (backward: the last), or -1.

        Args:
            parts: The bytes as each source has them, with context before and after the chunk.
            lead: The number of bytes before the chunk.
            stop: The index after its last byte.
            backward: Return the last match.
        """

    def lines(self) -> list[str]:
        """Return Python lines that set `found`, the offsets of all matches in `data`."""


class PatternMatcher:
    """Matches a pattern of bytes of which some are any; one across two chunks is the first's.

    Args:
        pattern: A regular expression of which each match has `length` bytes.
        length: The number of bytes.
    """

    lead, step = 0, 1

    def __init__(self, pattern: bytes, length: int) -> None:
        self.length, self.tail = length, length - 1
        self._pattern = pattern
        self._search = re.compile(pattern, re.DOTALL).search  # twice as fast as bytes.find()

    def find(self, parts: Sequence[bytes], lead: int, stop: int, backward: bool) -> int:
        """See Matcher."""
        data = parts[0]
        if not backward:
            match = self._search(data, lead, stop + self.tail)
            return -1 if match is None else match.start()
        for end in range(stop, lead, -_WINDOW):
            last, at = -1, max(lead, end - _WINDOW)
            while (match := self._search(data, at, end + self.tail)) is not None:
                last = match.start()
                at = last + 1
            if last >= 0:
                return last
        return -1

    def lines(self) -> list[str]:
        """See Matcher."""
        return [
            "import re",
            f"pattern = {self._pattern!r}",
            'matches = re.finditer(b"(?=" + pattern + b")", data, re.DOTALL)  # they may overlap',
            "found = np.array([match.start() for match in matches], int)",
        ]


class ExpressionMatcher:
    """Matches a regular expression in at most MAX_MATCH bytes; `length` is that of the last match.

    The search goes in steps of so many bytes, which bounds the time that each `*` takes.
    """

    lead, step, tail, length = MAX_MATCH, 1, MAX_MATCH - 1, 1  # lead: for `\\b`, `^` and `(?<=`

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern

    def find(self, parts: Sequence[bytes], lead: int, stop: int, backward: bool) -> int:
        """See Matcher."""
        data = parts[0]
        steps = range(lead, stop, MAX_MATCH)
        deadline = time.monotonic() + _MOST_S
        for first in reversed(steps) if backward else steps:
            at, end, found = first, min(first + MAX_MATCH, stop), None
            if time.monotonic() > deadline:
                raise ValueError(f"{self._pattern.pattern!r} takes too long: repeat less")
            while (start := self._pattern.search(data, at, end + self.tail)) is not None:
                at = start.start() + 1
                if at > end:
                    break
                match = self._pattern.match(data, at - 1, at - 1 + MAX_MATCH)
                found = match if match and match[0] else found
                if found is not None and not backward:
                    break
            if found is not None:
                self.length = len(found[0])
                return found.start()
        return -1

    def lines(self) -> list[str]:
        """See Matcher."""
        return [
            "import re",
            f"pattern = re.compile({b'(?=' + self._pattern.pattern + b')'!r}, re.DOTALL)",
            f"matches = pattern.finditer(data)  # {_LIMIT}",
            "found = np.array([match.start() for match in matches], int)",
        ]


class ValueMatcher:
    """Matches an aligned value from `low` to `high`, both included."""

    lead = 0

    def __init__(self, low: float, high: float, dtype: str, endian: str) -> None:
        self._low, self._high, self._dtype, self._endian = low, high, dtype, endian
        self.length = self.step = DTYPES[dtype][0]
        self.tail = self.length - 1

    def find(self, parts: Sequence[bytes], lead: int, stop: int, backward: bool) -> int:
        """See Matcher."""
        # The tail is shorter than a value: it only completes the last one that begins in the chunk.
        whole = (min(len(parts[0]), stop + self.tail) - lead) // self.length * self.length
        values = decode(parts[0][lead : lead + whole], self._dtype, self._endian)
        with np.errstate(over="ignore"):  # a bound beyond f16 is infinite
            low, high = (np.array(bound).astype(values.dtype) for bound in (self._low, self._high))
        matches = np.flatnonzero((values >= low) & (values <= high))
        return lead + self.length * int(matches[-1 if backward else 0]) if len(matches) else -1

    def lines(self) -> list[str]:
        """See Matcher."""
        code = ("<" if self._endian == "little" else ">") + DTYPES[self._dtype][1]
        return [
            f'values = np.frombuffer(data[: len(data) // {self.step} * {self.step}], "{code}")',
            *([_AS_FLOAT] if self._dtype == "bf16" else []),
            f"matches = (values >= {self._low!r}) & (values <= {self._high!r})",
            f"found = {self.step} * np.flatnonzero(matches)",
        ]


class DifferenceMatcher:
    """Matches the first byte of each run of bytes in which two sources differ.

    With `count` it never matches, and counts the differing `bytes` and the `runs` of them.
    """

    lead, tail, length, step = 1, 0, 1, 1

    def __init__(self, *, count: bool = False) -> None:
        self.counts = count
        self.bytes = self.runs = 0

    def find(self, parts: Sequence[bytes], lead: int, stop: int, backward: bool) -> int:
        """See Matcher."""
        first, second = parts
        if first == second:
            return -1
        unequal = np.frombuffer(first, "u1") != np.frombuffer(second, "u1")
        starts = unequal.copy()
        starts[1:] &= ~unequal[:-1]
        if self.counts:
            self.bytes += int(unequal[lead:stop].sum())
            self.runs += int(starts[lead:stop].sum())
            return -1
        matches = np.flatnonzero(starts[lead:stop])
        return lead + int(matches[-1 if backward else 0]) if len(matches) else -1

    def lines(self) -> list[str]:
        """See Matcher: `dpu` and `host` are the two sources."""
        return [
            "differs = dpu != host",
            "found = np.flatnonzero(differs & ~np.r_[False, differs[:-1]])  # first bytes of runs",
        ]


def parse_wanted(text: str, kind: str, dtype: str = "hex", endian: str = "little") -> Matcher:
    """Return the matcher of what a user looks for.

    Args:
        text: As `kind` says.
        kind: "text": a text, in UTF-8. "hex": two digits a byte, with or without spaces, commas and
            0x; ? is any digit. "regex": a regular expression of Python's `re` for up to 256 bytes,
            in which `.` is any byte. "value": an aligned value, or a range: 7, 0x40, 1.5..2.
        dtype: The type of a value, a key of DTYPES, or "hex" for u8.
        endian: The byte order of a value, "little" or "big".

    Raises:
        ValueError: The text is not of the kind, or the pattern is empty or too long.
    """
    if kind == "value":
        return _value_matcher(text, "u8" if dtype == "hex" else dtype, endian)
    if kind == "hex":
        limit = MAX_ANY if "?" in text else MAX_PATTERN
        return _pattern([_any_of(pair) for pair in _digit_pairs(text)], limit)
    if kind == "regex":
        return _expression_matcher(text)
    if kind == "text":
        return _pattern([re.escape(bytes([byte])) for byte in text.encode()])
    raise ValueError(f"a pattern is 'text', 'regex', 'hex' or 'value', not {kind!r}")


def _expression_matcher(text: str) -> ExpressionMatcher:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what a later Python may read in it
            pattern = re.compile(text.encode(), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if pattern.match(b""):
        raise ValueError(f"{text!r} matches no byte, and so everywhere")
    plain = _PLAIN.sub("_", text)
    if "$" in plain or r"\Z" in _PLAIN.findall(text):
        raise ValueError(f"{text!r} asks for the end of the bytes, which a search in parts has not")
    repeats = re.findall(r"[*+{|]|(?<![(*+?}])\?", plain)
    if pattern.flags & re.VERBOSE or re.search(r"\)[*+{?]", plain) or len(repeats) > MAX_REPEATS:
        raise ValueError(
            f"{text!r} can take for ever: it must repeat no group, and at most {MAX_REPEATS} times "
            "repeat a byte or a set, as [ab]*, or leave a choice"
        )
    return ExpressionMatcher(pattern)


def _digit_pairs(text: str) -> list[str]:
    words = text.replace(",", " ").split()
    digits = "".join(word.removeprefix("0x").removeprefix("0X") for word in words)
    if len(digits) % 2 or re.search("[^0-9a-fA-F?]", digits):
        raise ValueError(
            f"{text!r} is not hex: use two hex digits per byte, ? for any, as in 00 ff ?? 1?"
        )
    return [digits[at : at + 2] for at in range(0, len(digits), 2)]


def _any_of(pair: str) -> bytes:
    """Return the expression for a byte whose digits may be `?`."""
    if pair == "??":
        return b"."
    if "?" not in pair:
        return re.escape(bytes.fromhex(pair))
    choices = (bytes.fromhex(pair.replace("?", digit)) for digit in "0123456789abcdef")
    return b"[" + b"".join(map(re.escape, choices)) + b"]"


def _pattern(expressions: list[bytes], limit: int = MAX_PATTERN) -> PatternMatcher:
    if not 1 <= len(expressions) <= limit:
        raise ValueError(f"the pattern has {len(expressions):,} bytes; it must have 1 to {limit:,}")
    return PatternMatcher(b"".join(expressions), len(expressions))


def _value_matcher(text: str, dtype: str, endian: str) -> ValueMatcher:
    if dtype not in DTYPES or endian not in ("little", "big"):
        raise ValueError(f"{endian} {dtype!r} is no type: {', '.join(DTYPES)}; little or big")
    number: Callable[[str], float] = float if "f" in dtype else lambda word: int(word, 0)
    low, dots, high = text.partition("..")
    try:
        least, greatest = number(low), number(high if dots else low)
    except ValueError:
        raise ValueError(f"{text!r} is no {dtype}, nor a range of them: 7, 0x40, 1..9") from None
    if not least <= greatest:
        raise ValueError(f"{text!r} is an empty range: {least} is not at most {greatest}")
    if "f" not in dtype:
        limits = np.iinfo(DTYPES[dtype][1])
        if not limits.min <= least <= greatest <= limits.max:
            raise ValueError(f"{text!r} is beyond {dtype}: {limits.min:,} to {limits.max:,}")
    return ValueMatcher(least, greatest, dtype, endian)
