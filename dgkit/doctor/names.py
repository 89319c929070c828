# SPDX-License-Identifier: Apache-2.0
"""Names, error codes and ways to fail in an error text, read from names.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path

import msgspec

NAMED = "named"  # in the place of a check: those of what the text names
_KINDS = ("name", "error", "way", "else")
_CHECKS = re.compile(r"-|[a-z\d][a-z\d -]*")
_MOST_PARTS = 7  # of a name, such as `no kernel image is available for execution`
# `cudaErrorECCUncorrectable` is cuda, Error, ECC, Uncorrectable; `mlx5dv_devx` is mlx5dv, devx.
_SYLLABLE = re.compile(r"[a-z0-9]+|[A-Z]+(?![a-z])\d*|[A-Z][a-z0-9]*")
_GLUE = frozenset({"_", "-"})


class Name(msgspec.Struct, frozen=True):
    """A line of names.txt.

    Attributes:
        kind: name, error, way, else.
        what: What it is; ends the sentence "It names ...". Of the other kinds: the sentence.
        checks: Checks that concern it.
        remedy: Commands that show more.
        words: Names in small letters, a space between parts; `*` at the end: any further letters.
        pattern: Regular expression of a way to fail.
    """

    kind: str
    what: str
    checks: tuple[str, ...]
    remedy: tuple[str, ...]
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @property
    def syndrome(self) -> int:
        """Syndrome of a completion with an error (mlx5), or 0."""
        return next((int(word[4:], 16) for word in self.words if word.startswith("cqe ")), 0)


class Names:
    """The names and errors of a table, found by their words, and its ways to fail."""

    def __init__(self, text: str) -> None:
        """Parse a table; its first lines describe the format.

        Raises:
            ValueError: A line does not fit; the message has its number and what is wrong.
        """
        self.all: list[Name] = []
        self._numbers: list[tuple[re.Pattern[str], str]] = []
        for number, (head, *body) in blocks(text):
            try:
                self._add(head, tuple(map(str.strip, body)))
            except (ValueError, re.error) as error:
                raise ValueError(f"line {number}: {error}: {head[:60]!r}") from None
        self._words: dict[str, list[tuple[Name, frozenset[int]]]] = {}
        for name in self.all:
            for word in name.words:
                same = self._words.setdefault(word.replace(" ", ""), [])
                if any(other.kind == name.kind for other, _ in same):
                    raise ValueError(f"{word!r} is twice: {name.what!r}")
                same.append((name, _spaces(word)))
        self._heads = {len(word) - 1 for word in self._words if word.endswith("*")}
        self.ways = [name for name in self.all if name.kind == "way"]
        self.last_ways = [name for name in self.all if name.kind == "else"]

    def _add(self, head: str, remedy: tuple[str, ...]) -> None:
        kind, _, rest = head.partition(" ")
        if kind == "number":
            prefix, _, pattern = rest.partition(" ")
            self._numbers.append((re.compile(pattern, re.IGNORECASE), prefix))
            return
        parts = rest.split(": ")
        at = next((at for at, part in enumerate(parts) if at and _CHECKS.fullmatch(part)), 0)
        if kind not in _KINDS or not at or at == len(parts) - 1:
            raise ValueError(f"no `KIND WORDS: CHECK ...: TEXT` of a kind ({', '.join(_KINDS)})")
        left, names, what = ": ".join(parts[:at]), parts[at], ": ".join(parts[at + 1 :])
        checks = () if names == "-" else tuple(names.split())
        if kind in ("name", "error"):
            words = (re.sub(r"[^a-z0-9*]+", " ", word.lower()) for word in left.split(", "))
            name = Name(kind, what, checks, remedy, words=tuple(words))
        else:
            way = re.compile(rf"(?<![\w.])(?:{left})(?![a-z])", re.IGNORECASE)
            name = Name(kind, what, checks, remedy, pattern=way)
        self.all.append(name)

    def named(self, line: str) -> list[Name]:
        """Return the names and errors in a line, in its order; of overlapping ones the longest."""
        for pattern, prefix in self._numbers:
            line = pattern.sub(partial(_number, prefix), line)
        spans = sorted(self._spans(line), key=lambda one: one[0] - one[1])
        found: dict[Name, int] = {}
        for kind in ("name", "error"):  # an error's name has that of what it is of: cudaErrorAssert
            taken: set[int] = set()
            for first, end, name in spans:
                if name.kind == kind and taken.isdisjoint(range(first, end)):
                    taken |= set(range(first, end))
                    found.setdefault(name, first)
        return sorted(found, key=lambda name: found[name])

    def _spans(self, line: str) -> Iterator[tuple[int, int, Name]]:
        """Yield the first letter, the end and the name of each part of a line that is a name."""
        parts = [(found.start(), found.end()) for found in _SYLLABLE.finditer(line)]
        for at, (first, end) in enumerate(parts):
            joined, before = "", first
            breaks: set[int] = set()  # more than what joins the parts of an identifier
            joints: set[int] = set()
            for start, end in parts[at : at + _MOST_PARTS]:
                if start > before:
                    (joints if line[before:start] in _GLUE else breaks).add(len(joined))
                joined += line[start:end].lower()
                before = end
                if len(joined) > 2 or _stands_out(line, first, end):
                    for name in self._called(joined, end - start, breaks, joints):
                        yield first, end, name

    def _called(self, joined: str, last: int, breaks: set[int], joints: set[int]) -> Iterator[Name]:
        """Yield what has a name, or one that begins a name and ends in its last part."""
        sizes = (size for size in self._heads if len(joined) - last < size <= len(joined))
        for name, spaces in self._words.get(joined, ()):
            if breaks <= spaces:
                yield name
        for size in sizes:
            for name, spaces in self._words.get(f"{joined[:size]}*", ()):
                if breaks | joints <= spaces:
                    yield name


def _spaces(word: str) -> frozenset[int]:
    """Return where a name may be divided by more than what joins the parts of an identifier."""
    at = [found.start() for found in re.finditer(" ", word)]
    return frozenset(place - number for number, place in enumerate(at))


def _number(prefix: str, found: re.Match[str]) -> str:
    return f"{found[0]} {prefix} {found[1].lower().lstrip('0')} "


def spelt(line: str) -> str:
    """Return a line with the parts of its identifiers as words: NOT_FOUND is `not found`."""
    return " ".join(part.lower() for part in _SYLLABLE.findall(line))


def _stands_out(line: str, first: int, end: int) -> bool:
    """Return whether two letters are capitals, or a part of a longer name."""
    glued = _joins(line[first - 1 : first]) or _joins(line[end : end + 1])
    return line[first:end].isupper() or glued


def _joins(mark: str) -> bool:
    return bool(mark) and (mark.isalnum() or mark in "_:-")


def found(line: str, ways: Iterable[Name]) -> list[Name]:
    """Return the ways to fail that a line tells of; the text of one is not looked at again."""
    told = []
    for way in ways:
        line, count = way.pattern.subn(" ", line) if way.pattern else (line, 0)
        told += [way] * bool(count)
    return told


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each line that is not indented, with those below it that are, and its number."""
    block: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line[0] != " ":
            if block:
                yield first, block
            block, first = [], number
        block.append(line)
    if block:
        yield first, block


@cache
def known() -> Names:
    """Return the names of names.txt, which only an unknown error text needs."""
    return Names(Path(__file__).with_name("names.txt").read_text("utf-8"))
