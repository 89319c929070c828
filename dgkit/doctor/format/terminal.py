# SPDX-License-Identifier: Apache-2.0
"""The page of `dgkit doctor`, as styled lines: the CLI colours them, `str()` does not."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...units import one_line
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..registry import checks
from .summary import (
    FindingGroup,
    group_findings,
    headline,
    needed_text,
    origins,
    other_goals,
    proviso,
    reason,
    tried_kinds,
)

WIDTH = 100
LINES = 40  # of a screen
_SHORTEST_NOTE = 3
_OTHER_SIDE = (
    "These checks run on the other side, host or DPU: run the doctor there, or record that side "
    "(dgkit doctor --record FILE) and judge both (--from)."
)
_FEW_KINDS = 4  # of experiments: each may have two lines
_MAX_ADVICE = 2  # pieces of advice written in full; the rest only by name
_MARGIN, _INDENT, _REMEDY = " " * 2, " " * 6, " " * 8


class Span(NamedTuple):
    """Part of a line.

    Attributes:
        text: The text.
        style: Word of a verdict, `command`, `strong`, `faint`, or "".
    """

    text: str
    style: str = ""


Line = tuple[Span, ...]


def page(diagnosis: Diagnosis, *, verbose: bool = False, width: int = WIDTH) -> list[Line]:
    """Return all lines, worst finding first; one screen unless verbose or checks were named.

    No line is wider than `width`, except commands, which are not wrapped.
    """
    lines = [
        *_head_lines(diagnosis, width),
        *_data_paths(diagnosis, width, verbose=verbose),
        *_experiments(diagnosis, width),
    ]
    every = verbose or not diagnosis.data_paths  # without data paths, checks were requested by name
    foot = [(), *_foot_lines(diagnosis, width, every=every, repeat=False)]
    two = None not in (diagnosis.case.host, diagnosis.case.dpu)
    writer = _Writer(width, verbose=verbose, two_sides=two)
    if every:
        for group in group_findings(diagnosis.findings):
            lines += [(), *writer.full(group), *writer.consequences(group, diagnosis.findings)]
    else:
        lines += _fitting(diagnosis, writer, LINES - len(lines) - len(foot))
    if not diagnosis.findings:
        lines += [(), *paragraph(_OTHER_SIDE, width, _MARGIN)]
    if len(lines) > LINES:  # the verdict in the first line may have left the screen
        foot = [(), *_foot_lines(diagnosis, width, every=every, repeat=True)]
    return [*lines, *foot]


def _fitting(diagnosis: Diagnosis, writer: _Writer, room: int) -> list[Line]:
    """Return the findings in at most `room` lines: each in full, in short, or only by name.

    The first finding is always in full. The consequences of a failure are named below it.
    """
    shown = {finding.check for finding in diagnosis.findings}
    roots = [finding for finding in diagnosis.findings if finding.follows not in shown]
    groups = group_findings(finding for finding in roots if finding.verdict >= Verdict.UNKNOWN)
    lines: list[Line] = []
    left: list[FindingGroup] = []
    before = ""
    for group in groups:
        rest = writer.names([*left, *(one for one in groups[groups.index(group) + 1 :])])
        free = room - len(lines) - (len(rest) + 1 if rest else 0)
        for form, part in writer.forms(group, diagnosis.findings):
            gap: list[Line] = [] if form == before == "short" else [()]
            if not lines or len(gap) + len(part) <= free:
                lines += [*gap, *part]
                before = form
                break
        else:
            left.append(group)
            continue
        writer.mark_written()
    lines += [(), *writer.names(left)] if left else []
    return [*lines, *_advice(diagnosis, writer.width, room - len(lines))]


def _head_lines(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    for line in origins(diagnosis):
        style = "warn" if line.startswith("synthetic") else "faint"
        yield from paragraph(line, width, "", style)
    goal, verdict = diagnosis.goal, str(diagnosis.verdict)
    counts = f" ({diagnosis.counts})" if diagnosis.findings else ""
    yield (Span(f"{goal}: ", "strong"), Span(verdict, verdict), Span(counts))
    why = diagnosis.chosen
    others = f"Other goals: --goal {other_goals(diagnosis)}."
    chosen = f" Chosen because {why}. {others}" if why else ""
    if diagnosis.data_paths:
        yield from paragraph(headline(diagnosis), width, _MARGIN, "strong")
    yield from paragraph(f"Goal: {goal.text}.{chosen}", width, _MARGIN)


def _data_paths(diagnosis: Diagnosis, width: int, *, verbose: bool) -> Iterator[Line]:
    """Yield a line for each path down to the best one that works, and one line for the rest.

    If verbose, each path has its own line and its description.
    """
    paths, best = diagnosis.data_paths, diagnosis.best
    if not paths:
        return
    listed = paths if verbose or best is None else paths[: paths.index(best) + 1]
    yield ()
    yield from paragraph("Data paths, best first", width, "", "strong")
    title_width = max(len(path.title) for path in listed)
    for path in listed:
        label, word, why = f"{_MARGIN}{path.title:<{title_width}}  ", path.word, reason(path)
        if diagnosis.tried:
            word += " (tried)" if path.tried else " (inferred)"
        recommended = ", recommended here" if path.verdict is Verdict.OK and why else ""
        first, *rest = wrapped(word + recommended + why, width - len(label))
        yield (Span(label), Span(first[: len(word)], str(path.verdict)), Span(first[len(word) :]))
        yield from ((Span(" " * len(label) + line),) for line in rest)
        if verbose:
            more = path.why if path.why not in (path.proviso, why.removeprefix(": ")) else ""
            details = f"{path.what} {more} {proviso(diagnosis, path)}"
            yield from paragraph(details, width, _INDENT)
    others = [path for path in paths[len(listed) :] if path.serves]  # not the substitutes
    if after := "; ".join(f"{path.title} {path.word}" for path in others):
        yield from paragraph(f"Others: {after}.", width, _MARGIN)


def _experiments(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    """Yield a line for each kind of experiment: how many worked, which failed or did not run."""
    if not diagnosis.tried:
        return
    yield ()
    yield from paragraph("Tried; a result overrules an inference", width, "", "strong")
    kinds = tried_kinds(diagnosis.tried)
    title_width = max(len(kind.title) for kind in kinds)
    for kind in kinds:
        label = f"{_MARGIN}{kind.title:<{title_width}}  "
        first, *rest = wrapped(kind.text, width - len(label))
        yield (Span(label), Span(first, str(kind.verdict)))
        yield from ((Span(" " * len(label) + line),) for line in rest[: len(kinds) < _FEW_KINDS])


def _advice(diagnosis: Diagnosis, width: int, room: int) -> Iterator[Line]:
    """Yield what other programs need here and what is not judged, as much as fits."""
    found = [
        finding
        for finding in diagnosis.findings
        if finding.check == "other-programs" and finding.subject
    ]
    parts: list[list[Line]] = []
    for finding in found[:_MAX_ADVICE]:
        text = f"Note  {finding.subject}: {finding.found}. {finding.why}"
        parts.append(list(paragraph(text, width, "", "faint")))
    rest = ", ".join(finding.subject for finding in found[_MAX_ADVICE:])
    if rest:
        text = f"Also: {rest}: dgkit doctor other-programs --verbose."
        parts.append(list(paragraph(text, width, "", "faint")))
    if parts and 1 + sum(map(len, parts)) <= room:
        yield ()
        for part in parts:
            yield from part
    elif found and room >= _SHORTEST_NOTE:
        yield ()
        names = ", ".join(finding.subject for finding in found)
        text = f"Notes on {names}: dgkit doctor other-programs --verbose."
        yield from list(paragraph(text, width, "", "faint"))[: room - 1]


def _foot_lines(diagnosis: Diagnosis, width: int, *, every: bool, repeat: bool) -> Iterator[Line]:
    hidden = sum(f.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE) for f in diagnosis.findings)
    verdict = str(diagnosis.verdict).rstrip(".")
    text = f"{diagnosis.goal}: {verdict}. " if repeat else ""
    text += f"Took {diagnosis.took_s:.1f} s."
    if hidden and not every:
        findings = "the finding that is" if hidden == 1 else f"the {hidden} findings that are"
        text += f" --verbose shows {findings} ok or n.a."
    yield from paragraph(text, width, "", "faint")


class _Writer:
    """Writer of findings as lines; each remedy is written once."""

    def __init__(self, width: int, *, verbose: bool, two_sides: bool) -> None:
        self._width, self._verbose, self._two_sides = width, verbose, two_sides
        self._remedies: dict[tuple[str, ...], str] = {}
        self._last_check = ""
        self._explained: set[str] = set()
        self._kept = self._state()
        self._asks = {check.name: check.asks for check in checks()} if verbose else {}

    @property
    def width(self) -> int:
        """Maximum length of a line."""
        return self._width

    def _state(self) -> tuple[dict[tuple[str, ...], str], str, set[str]]:
        return dict(self._remedies), self._last_check, set(self._explained)

    def mark_written(self) -> None:
        """Mark the form that was yielded last as written; later forms may refer to it."""
        self._kept = self._state()

    def forms(
        self, group: FindingGroup, findings: Sequence[Finding]
    ) -> Iterator[tuple[str, list[Line]]]:
        """Yield the forms of a finding, longest first; call mark_written() for the one written."""
        unanswered = group.finding.verdict is Verdict.UNKNOWN
        if not unanswered:
            yield "full", [*self.full(group), *self.consequences(group, findings)]
            self._restore()
        yield "short", list(self.short(group, why=unanswered))
        self._restore()

    def _restore(self) -> None:
        remedies, self._last_check, explained = self._kept
        self._remedies, self._explained = dict(remedies), set(explained)

    def names(self, groups: Sequence[FindingGroup]) -> list[Line]:
        """Return the names of the findings that do not fit, and how to see them."""
        by_verdict: dict[str, list[str]] = {}
        for group in groups:
            names = by_verdict.setdefault(str(group.finding.verdict), [])
            if group.finding.check not in names:
                names.append(group.finding.check)
        if not by_verdict:
            return []
        said = "; ".join(f"{word}: {', '.join(names)}" for word, names in by_verdict.items())
        text = f"Also {said}. `dgkit doctor NAME` shows each, --verbose all."
        return list(paragraph(text, self._width, ""))

    def full(self, group: FindingGroup) -> Iterator[Line]:
        """Yield what was found and needed, why it matters, the remedy and the sources."""
        finding = group.finding
        yield from self._heading(group)
        if self._verbose and finding.check in self._asks:
            yield from paragraph(self._asks[finding.check], self._width, _INDENT, "faint")
        yield from paragraph(finding.why, self._width, _INDENT)
        yield from self._commands(finding)
        if self._verbose:
            yield from paragraph(finding.disagree, self._width, _INDENT)
        repeated = self._last_check == finding.check and not self._verbose
        self._last_check = finding.check
        for source in finding.sources if self._verbose else finding.sources[: not repeated]:
            link = f" <{source.url}>" if self._verbose and source.url else ""
            yield from paragraph(f"Source: {source}{link}", self._width, _INDENT, "faint")

    def short(self, group: FindingGroup, *, why: bool = False) -> Iterator[Line]:
        """Yield the heading and the remedy."""
        reason = group.finding.why.rstrip(".")
        yield from self._heading(group, f" ({reason})" if why and reason else "")
        yield from self._commands(group.finding)

    def consequences(self, group: FindingGroup, findings: Iterable[Finding]) -> Iterator[Line]:
        """Yield the checks whose failures and warnings follow from this finding, each once."""
        cause = group.finding
        if cause.check in self._explained or self._verbose:
            return
        self._explained.add(cause.check)
        names = dict.fromkeys(
            finding.check
            for finding in findings
            if finding.follows == cause.check
            and finding.side == cause.side
            and finding.verdict > Verdict.UNKNOWN
        )
        if names:
            yield from paragraph(f"From it follow: {', '.join(names)}.", self._width, _INDENT)

    def _heading(self, group: FindingGroup, more: str = "") -> Iterator[Line]:
        finding = group.finding
        word = str(finding.verdict)
        name = f"{finding.side} {finding.check}" if self._two_sides else finding.check
        about = f", {group.about}" if group.about else ""
        text = f"{finding.title}{about}: {finding.found}{needed_text(finding)}{more}"
        label = f"{word:<4}  "
        first, *rest = wrapped(f"{name}  {text}", self._width - len(label))
        yield (Span(label, word), Span(name, "strong"), Span(first[len(name) :]))
        yield from ((Span(_INDENT + line),) for line in rest)

    def _commands(self, finding: Finding) -> Iterator[Line]:
        if finding.remedy in self._remedies:
            check = self._remedies[finding.remedy]
            if finding.remedy and check != finding.check:
                note = f"The commands of {check}, above, fix this, too."
                yield from paragraph(note, self._width, _INDENT)
            return
        self._remedies[finding.remedy] = finding.check
        for command in finding.remedy:
            if command.startswith("#"):
                first, *rest = wrapped(command, self._width - len(_REMEDY) - 2)
                lines = [first, *(f"# {line}" for line in rest)]  # safe to paste into a shell
                yield from ((Span(_REMEDY + line, "faint"),) for line in lines)
            else:
                yield (Span(_REMEDY), Span(one_line(command), "command"))


def shortened(lines: list[Line], room: int) -> list[Line]:
    """Return at most `room` lines; if some are left out, the last one names where all are."""
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], (Span("... (all of it: --json)", "faint"),)]


def command_line(command: str, indent: str) -> Line:
    """Return a command of a remedy, or its comment, unwrapped."""
    style = "faint" if command.startswith("#") else "command"
    return (Span(indent), Span(one_line(command), style))


def paragraph(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    """Yield a text as lines of at most `width` characters."""
    for line in wrapped(text, width - len(indent)):
        yield (Span(indent + line, style),)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text; words are broken only where they are longer than a line."""
    wrapper = textwrap.TextWrapper(max(width, 20), break_long_words=True, break_on_hyphens=False)
    return wrapper.wrap(one_line(text))
