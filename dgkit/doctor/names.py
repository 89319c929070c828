"""What an error text names, and the ways to fail that it tells of, read from names.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

NAMED = "named"  # in the place of a check: those of what the text names
_KINDS = ("name", "error", "way", "else")
_LINE = re.compile(r"(.+?): (-|[a-z\d]+(?:[- ][a-z\d]+)*): (.+)")
_MOST_PARTS = 7  # of a name, such as `no kernel image is available for execution`
# `cudaErrorECCUncorrectable` is cuda, Error, ECC, Uncorrectable; `mlx5dv_devx` is mlx5dv, devx.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")


class Name(msgspec.Struct, frozen=True):
    """A line of names.txt.

    Attributes:
        kind: name, error, way, else.
        what: What it is; ends the sentence "It names ...". Of the other kinds: the sentence.
        checks: Checks that concern it.
        words: Names in small letters, without what separates their parts; `*` at the end.
        pattern: Regular expression of a way to fail.
        remedy: Commands that show more.
    """

    kind: str
    what: str
    checks: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    remedy: tuple[str, ...] = ()

    @property
    def syndrome(self) -> int:
        """Syndrome of a completion with an error (mlx5), or 0."""
        return next((int(word[3:], 16) for word in self.words if word.startswith("cqe")), 0)


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
        self._words: dict[str, Name] = {}
        for name in self.all:
            for word in name.words:
                if self._words.setdefault(word, name) is not name:
                    raise ValueError(f"{word!r} is in two lines of {name.kind}s: {name.what!r}")
        self._heads = {len(word) - 1 for word in self._words if word.endswith("*")}
        self.ways = [name for name in self.all if name.kind == "way"]
        self.last_ways = [name for name in self.all if name.kind == "else"]

    def _add(self, head: str, remedy: tuple[str, ...]) -> None:
        kind, _, rest = head.partition(" ")
        if kind == "number":
            prefix, _, pattern = rest.partition(" ")
            self._numbers.append((re.compile(pattern, re.IGNORECASE), prefix))
            return
        line = _LINE.fullmatch(rest)
        if kind not in _KINDS or line is None:
            raise ValueError(f"no `KIND WORDS: CHECK ...: TEXT` of a kind ({', '.join(_KINDS)})")
        left, checks, what = line.groups()
        words, pattern = (), None
        if kind in _KINDS[:2]:
            words = tuple(re.sub(r"[^a-z0-9*]", "", word.lower()) for word in left.split(", "))
        else:
            pattern = re.compile(rf"(?<![\w.])(?:{left})(?![a-z])", re.IGNORECASE)
        concerns = tuple(checks.split()) if checks != "-" else ()
        self.all.append(Name(kind, what, concerns, words, pattern, remedy))

    def named(self, line: str) -> list[Name]:
        """Return the names and errors in a line, in its order; of those that overlap, the longest."""
        for pattern, prefix in self._numbers:
            line = pattern.sub(lambda m, p=prefix: f" {p}{m[1].lower().lstrip('0')} ", line)
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
        parts = [(found.start(), found.end()) for found in _PART.finditer(line)]
        for at, (first, end) in enumerate(parts):
            joined = ""
            for start, end in parts[at : at + _MOST_PARTS]:
                part = line[start:end].lower()
                joined += part
                if len(joined) > 2 or _stands_out(line, first, end):
                    for name in self._called(joined, len(part)):
                        yield first, end, name

    def _called(self, joined: str, last: int) -> Iterator[Name]:
        """Yield what has a name, or one that begins a name and ends in its last part."""
        sizes = (size for size in self._heads if len(joined) - last < size <= len(joined))
        for key in (joined, *(f"{joined[:size]}*" for size in sizes)):
            if key in self._words:
                yield self._words[key]


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


NAMES = Names(Path(__file__).with_name("names.txt").read_text("utf-8"))
