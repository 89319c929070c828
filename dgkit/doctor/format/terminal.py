"""A diagnosis as lines of text: what the terminal shows, in colours, and `str()` without them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..registry import checks
from .summary import Entry, by, clean, entries, headline, needed, origins, proviso

__all__ = ["Line", "Span", "page"]

WIDTH = 100
_ROOM = 32  # lines; after them warnings, and failures that the same commands mend, are short
_NOBODY = (
    "What was asked for is looked at on the other side, host or DPU: ask there, or record that "
    "side (dgkit doctor --record FILE) and judge both (--from)."
)
_MARGIN, _INDENT, _REMEDY = " " * 2, " " * 6, " " * 8


class Span(NamedTuple):
    """Some text of a line. `style`: a verdict's word, `command`, `strong`, `faint`, or nothing."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def page(diagnosis: Diagnosis, *, verbose: bool = False, width: int = WIDTH) -> list[Line]:
    """All lines, the worst first. None is wider than `width`, but for commands: they are whole."""
    lines = [*_head(diagnosis, width), *_ways(diagnosis, width, verbose=verbose)]
    every = verbose or not diagnosis.ways  # then these checks were asked for by name
    two = None not in (diagnosis.case.host, diagnosis.case.dpu)
    writer = _Writer(width, verbose=verbose, two_sides=two)
    short = False
    for entry in entries(diagnosis.findings):
        verdict = entry.finding.verdict
        if verdict < Verdict.WARN and not every:
            break
        new = verdict is Verdict.FAIL and not writer.gave(entry)
        whole = every or new or len(lines) < _ROOM
        if whole or not short:
            lines.append(())
        lines += writer.full(entry) if whole else writer.short(entry)
        short = not whole
    if not diagnosis.findings:
        lines += [(), *_said(_NOBODY, width, _MARGIN)]
    if not every:
        lines += _untold(diagnosis, writer)
    return [*lines, (), *_foot(diagnosis, width, every=every)]


def _head(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    for line in origins(diagnosis):
        style = "warn" if line.startswith("synthetic") else "faint"
        yield from _said(line, width, "", style)
    goal, verdict = diagnosis.goal, str(diagnosis.verdict)
    many = f" ({diagnosis.counts})" if diagnosis.findings else ""
    yield (Span(f"{goal}: ", "strong"), Span(verdict, verdict), Span(many))
    chosen = f" This goal: {diagnosis.chosen}; --goal takes another." if diagnosis.chosen else ""
    if diagnosis.ways:
        yield from _said(headline(diagnosis), width, _MARGIN, "strong")
    yield from _said(f"Goal: {goal.text}.{chosen}", width, _MARGIN)


def _ways(diagnosis: Diagnosis, width: int, *, verbose: bool) -> Iterator[Line]:
    """Those up to the best one that works, a line each; the rest in one, unless all are wanted."""
    ways, best = diagnosis.ways, diagnosis.best
    if not ways:
        return
    ahead = ways if verbose or best is None else ways[: ways.index(best) + 1]
    yield ()
    yield from _said("Ways of moving bytes, the better ones first", width, "", "strong")
    wide = max(len(way.title) for way in ahead)
    for way in ahead:
        label, word = f"{_MARGIN}{way.title:<{wide}}  ", way.word
        here = ", and is the way here" if way.verdict is Verdict.OK and by(way) else ""
        first, *rest = _wrapped(word + here + by(way), width - len(label))
        yield (Span(label), Span(first[: len(word)], str(way.verdict)), Span(first[len(word) :]))
        yield from ((Span(" " * len(label) + line),) for line in rest)
        if verbose:
            why = way.why if way.why not in (way.proviso, by(way).removeprefix(": ")) else ""
            yield from _said(f"{way.what} {why} {proviso(diagnosis, way)}", width, _INDENT)
    if after := "; ".join(f"{way.title}: {way.word}" for way in ways[len(ahead) :]):
        yield from _said(f"Further: {after}.", width, _MARGIN)


def _untold(diagnosis: Diagnosis, writer: _Writer) -> Iterator[Line]:
    """What nobody could look at: short, whatever else the page has."""
    found = [one for one in diagnosis.findings if one.verdict is Verdict.CANNOT_TELL]
    if found:
        yield ()
    for entry in entries(found):
        yield from writer.short(entry, why=True)


def _foot(diagnosis: Diagnosis, width: int, *, every: bool) -> Iterator[Line]:
    hidden = sum(f.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE) for f in diagnosis.findings)
    verdict = str(diagnosis.verdict).rstrip(".")
    text = f"{diagnosis.goal}: {verdict}. Read and judged in {diagnosis.took_s:.1f} s."
    if hidden and not every:
        text += f" --verbose shows the {hidden} that are ok or do not apply."
    yield from _said(text, width, "", "faint")


class _Writer:
    """Findings as lines. It remembers which commands it gave, and gives them once."""

    def __init__(self, width: int, *, verbose: bool, two_sides: bool) -> None:
        self._width, self._verbose, self._two_sides = width, verbose, two_sides
        self._given: dict[tuple[str, ...], str] = {}
        self._check = ""  # the last one that was shown
        self._asks = {one.name: one.asks for one in checks()} if verbose else {}

    def gave(self, entry: Entry) -> bool:
        """Whether its commands stand on the page already."""
        return entry.finding.remedy in self._given

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
        again = self._check == finding.check and not self._verbose
        self._check = finding.check
        for source in finding.sources if self._verbose else finding.sources[: not again]:
            link = f" <{source.url}>" if self._verbose and source.url else ""
            yield from _said(f"Source: {source}{link}", self._width, _INDENT, "faint")

    def short(self, entry: Entry, *, why: bool = False) -> Iterator[Line]:
        """A heading and the commands."""
        said = entry.finding.why.rstrip(".")
        yield from self._heading(entry, f" ({said})" if why and said else "")
        yield from self._commands(entry.finding)

    def _heading(self, entry: Entry, more: str = "") -> Iterator[Line]:
        finding = entry.finding
        word = str(finding.verdict)
        name = f"{finding.side} {finding.check}" if self._two_sides else finding.check
        about = f", {entry.about}" if entry.about else ""
        text = f"{finding.title}{about}: {finding.found}{needed(finding)}{more}"
        label = f"{word:<4}  "
        first, *rest = _wrapped(f"{name}  {text}", self._width - len(label))
        yield (Span(label, word), Span(name, "strong"), Span(first[len(name) :]))
        yield from ((Span(_INDENT + line),) for line in rest)

    def _commands(self, finding: Finding) -> Iterator[Line]:
        if finding.remedy in self._given:
            before = self._given[finding.remedy]
            if finding.remedy and before != finding.check:
                yield from _said(
                    f"What {before} gives to type mends this, too.", self._width, _INDENT
                )
            return
        self._given[finding.remedy] = finding.check
        for command in finding.remedy:
            if command.startswith("#"):  # words, which no shell is to be given
                first, *rest = _wrapped(command, self._width - len(_REMEDY) - 2)
                yield from ((Span(_REMEDY + line, "faint"),) for line in [first, *_more(rest)])
            else:
                yield (Span(_REMEDY), Span(clean(command), "command"))


def _more(lines: list[str]) -> list[str]:
    """As comments, too, so that all of it may be pasted."""
    return [f"# {line}" for line in lines]


def _said(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    for line in _wrapped(text, width - len(indent)):
        yield (Span(indent + line, style),)


def _wrapped(text: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(max(width, 20), break_long_words=True, break_on_hyphens=False)
    return wrapper.wrap(clean(text))
