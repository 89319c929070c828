"""A diagnosis as lines of text: what the terminal shows, in colours, and `str()` without them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .diagnosis import Diagnosis
from .finding import Finding, Verdict
from .registry import checks
from .summary import Entry, by, clean, counts, entries, origins
from .ways import Way

__all__ = ["Line", "Span", "page"]

WIDTH = 100
_ROOM = 40  # lines; warnings that do not fit are shown without their reasons
_MARGIN, _INDENT = " " * 2, " " * 6


class Span(NamedTuple):
    """Some text of a line. `style`: a verdict's word, `command`, `strong`, `faint`, or nothing."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def page(diagnosis: Diagnosis, *, verbose: bool = False, width: int = WIDTH) -> list[Line]:
    """All lines, the worst first. None is wider than `width`, but for commands: they are whole."""
    lines = [*_head(diagnosis, width), *_ways(diagnosis.ways, width, verbose=verbose)]
    every = verbose or not diagnosis.ways  # then these checks were asked for by name
    two = len({one.side for one in diagnosis.findings}) > 1
    writer = _Writer(width, verbose=verbose, two_sides=two)
    for entry in entries(diagnosis.findings):
        verdict = entry.finding.verdict
        if verdict is Verdict.FAIL or every:
            lines += [(), *writer.full(entry)]
        elif verdict is Verdict.WARN:
            whole = [(), *writer.full(entry)]
            lines += whole if len(lines) + len(whole) <= _ROOM else writer.short(entry)
    if not every:
        lines += _untold(diagnosis, writer)
    return [*lines, (), *_foot(diagnosis, width, every=every)]


def _head(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    for line in origins(diagnosis):
        yield (Span(clean(line), "warn" if line.startswith("synthetic") else "faint"),)
    goal, verdict = diagnosis.goal, str(diagnosis.verdict)
    yield (Span(f"{goal}: ", "strong"), Span(verdict, verdict), Span(f" ({counts(diagnosis)})"))
    chosen = f" This goal: {diagnosis.chosen}; --goal takes another." if diagnosis.chosen else ""
    if diagnosis.ways:
        yield from _said(diagnosis.summary(), width, _MARGIN, "strong")
    yield from _said(f"Goal: {goal.text}.{chosen}", width, _MARGIN)


def _ways(ways: Sequence[Way], width: int, *, verbose: bool) -> Iterator[Line]:
    if not ways:
        return
    yield ()
    yield (Span("Ways of moving bytes, the better ones first", "strong"),)
    wide = max(len(way.title) for way in ways)
    for way in ways:
        label, word = f"{_MARGIN}{way.title:<{wide}}  ", way.word
        first, *rest = _wrapped(word + by(way), width - len(label))
        yield (Span(label), Span(first[: len(word)], str(way.verdict)), Span(first[len(word) :]))
        yield from ((Span(" " * len(label) + line),) for line in rest)
        if verbose:
            yield from _said(f"{way.what} {way.why}".strip(), width, _INDENT)


def _untold(diagnosis: Diagnosis, writer: _Writer) -> Iterator[Line]:
    """What nobody could look at: short, whatever else the page has."""
    found = [one for one in diagnosis.findings if one.verdict is Verdict.CANNOT_TELL]
    if found:
        yield ()
    for entry in entries(found):
        yield from writer.short(entry, why=True)


def _foot(diagnosis: Diagnosis, width: int, *, every: bool) -> Iterator[Line]:
    hidden = sum(f.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE) for f in diagnosis.findings)
    text = f"Read and judged in {diagnosis.took_s:.1f} s."
    if hidden and not every:
        text += f" --verbose shows the {hidden} that are ok or do not apply."
    yield from _said(text, width, "", "faint")


class _Writer:
    """Findings as lines. It remembers which commands it gave, and gives them once."""

    def __init__(self, width: int, *, verbose: bool, two_sides: bool) -> None:
        self._width, self._verbose, self._two_sides = width, verbose, two_sides
        self._given: dict[tuple[str, ...], str] = {}
        self._asks = {one.name: one.asks for one in checks()} if verbose else {}

    def full(self, entry: Entry) -> Iterator[Line]:
        """What was found and needed, why it matters, the commands, the source."""
        finding = entry.finding
        yield from self._heading(entry)
        if self._verbose and finding.check in self._asks:
            yield from _said(self._asks[finding.check], self._width, _INDENT, "faint")
        yield from _said(finding.why, self._width, _INDENT)
        yield from self._commands(finding)
        if self._verbose:
            yield from _said(finding.disagree, self._width, _INDENT)
        for source in finding.sources if self._verbose else finding.sources[:1]:
            link = f" <{source.url}>" if self._verbose and source.url else ""
            yield from _said(f"Source: {source}{link}", self._width, _INDENT, "faint")

    def short(self, entry: Entry, *, why: bool = False) -> Iterator[Line]:
        """A heading and the commands."""
        yield from self._heading(entry, f". {entry.finding.why}" if why else "")
        yield from self._commands(entry.finding)

    def _heading(self, entry: Entry, more: str = "") -> Iterator[Line]:
        finding = entry.finding
        word = str(finding.verdict)
        name = f"{finding.side} {finding.check}" if self._two_sides else finding.check
        about = f" of {entry.about}" if entry.about else ""
        needed = f"; needed: {finding.needed}" if finding.needed else ""
        text = f"{finding.title}{about}: {finding.found}{needed}{more}"
        label = f"{word:<4}  "
        first, *rest = _wrapped(f"{name}  {text}", self._width - len(label))
        yield (Span(label, word), Span(name, "strong"), Span(first[len(name) :]))
        yield from ((Span(_INDENT + line),) for line in rest)

    def _commands(self, finding: Finding) -> Iterator[Line]:
        before = self._given.setdefault(finding.remedy, finding.check)
        if finding.remedy and before != finding.check:
            yield from _said(f"The commands of {before} mend this, too.", self._width, _INDENT)
            return
        for command in finding.remedy:
            style = "faint" if command.startswith("#") else "command"
            yield (Span(_INDENT + "  "), Span(clean(command), style))


def _said(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    for line in _wrapped(text, width - len(indent)):
        yield (Span(indent + line, style),)


def _wrapped(text: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(max(width, 20), break_long_words=True, break_on_hyphens=False)
    return wrapper.wrap(clean(text))
