# SPDX-License-Identifier: Apache-2.0
"""The pages of `dgkit doctor --symptom`, `--program` and `--compare`, as styled lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...units import one_line
from ..finding import Finding
from ..program_needs import Answer
from ..snapshot_comparison import Comparison, Difference
from ..symptoms import DMESG, EXCLUDED, FOUND, Explanation, Explanations, Match, RankedCause
from .summary import group_findings
from .terminal import LINES, WIDTH, Line, Span, command_line, paragraph, shortened, wrapped

_SAME_GOAL = "Nothing that the doctor judges for this goal differs."
_STYLES = {FOUND: "fail", EXCLUDED: "ok"}
_UNKNOWN = (
    "This text is not in the doctor's table, and names nothing that the doctor knows. "
    "`dgkit doctor --report` prints what a thread needs."
)
_MOST_COMMANDS = 4
_PROGRAM = "The machine is fine as far as this text goes: what is left is the program."


def symptom_page(found: Explanations, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: each text, its causes on this machine, and the kernel's own words."""
    lines = [line for one in found.texts for line in (*_text_lines(one, width), ())]
    if not found.texts:
        lines += [*paragraph(_UNKNOWN, width, ""), ()]
    foot = list(_kernel_lines(found.kernel, found.unread, width))
    return [*shortened(lines, LINES - len(foot)), *foot]


def _text_lines(explained: Explanation, width: int) -> Iterator[Line]:
    symptom = explained.match.symptom
    yield (Span(f"{symptom.program}: "), Span(_short(explained.match.line, width - 12), "strong"))
    yield from paragraph(symptom.means, width, "  ")
    if symptom.source:
        yield (Span(f"  Source: {symptom.source}", "faint"),)
    if symptom.fault:
        command = f"dgkit mlx5 run --fault {symptom.fault} -- PROGRAM"
        yield (Span("  Without hardware: "), Span(command, "command"))
    excluded = [one for one in explained.causes if one.state == EXCLUDED]
    if explained.program_only:
        yield from paragraph(_PROGRAM, width, "  ", "ok")
    for cause in explained.causes:
        if cause.state != EXCLUDED:
            yield from _cause_rank_lines(cause, width)
    if excluded:
        texts = " ".join(one.cause.text for one in excluded)
        yield from paragraph(f"Excluded here: {texts}", width, "  ", "faint")


def _cause_rank_lines(cause: RankedCause, width: int) -> Iterator[Line]:
    first, *rest = wrapped(cause.cause.text, width - 12)
    yield (Span(f"  {cause.state:<10}", _STYLES.get(cause.state, "unknown")), Span(first))
    yield from ((Span(" " * 12 + line),) for line in rest)
    if cause.state == FOUND:
        for one in cause.findings[:2]:
            about = f" ({one.subject})" if one.subject else ""
            yield from paragraph(f"{one.check}: {one.found}{about}. {one.why}", width, " " * 12)
    for command in cause.remedy[:_MOST_COMMANDS]:
        yield command_line(command, " " * 12)


def _kernel_lines(kernel: Sequence[Match], unread: str, width: int) -> Iterator[Line]:
    if unread:
        yield from paragraph(f"{unread} As root: {DMESG}", width, "", "faint")
    for match in kernel[:3]:
        yield (Span("The kernel said: "), Span(_short(match.line, width - 17), "strong"))
        yield from paragraph(match.symptom.means, width, "  ")


def _short(line: str, width: int) -> str:
    text = one_line(line)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def needs_page(found: Answer, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: the answer, then the settings or the cause."""
    lines = [*paragraph(found.sentence, width, "", "ok" if found.fine else "fail"), ()]
    part = [*_setting_lines(found, width)] if found.fine else [*_cause_lines(found, width)]
    return [*lines, *shortened(part, LINES - len(lines))]


def _setting_lines(found: Answer, width: int) -> Iterator[Line]:
    before = ""
    for setting in found.settings:
        yield (Span("  "), Span(one_line(setting.command), "command"))
        about = f"{setting.why} <{setting.source}>"
        if about != before:
            yield from paragraph(about, width, "      ", "faint")
        before = about


def _cause_lines(found: Answer, width: int) -> Iterator[Line]:
    cause = found.cause
    if cause is not None:
        about = f", {cause.subject}" if cause.subject else ""
        yield from paragraph(
            f"{cause.check}: {cause.title}{about}: {cause.found}. {cause.why}", width, "  "
        )
        for command in cause.remedy:
            yield command_line(command, "      ")
    yield from paragraph(f"First: dgkit doctor --goal {found.diagnosis.goal}", width, "  ", "faint")


def comparison_page(found: Comparison, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: verdicts, data paths, what decides the goal, what else differs."""
    lines = [*_head_lines(found, width)]
    deciding = [one for one in found.differences if one.is_relevant]
    others = [one for one in found.differences if not one.is_relevant]
    foot = [(), *_foot_lines(found, width)]
    room = LINES - len(lines) - len(foot)
    titles = ("Different verdicts, those that the goal depends on first", "Other differences")
    for title, group in zip(titles, (deciding, others), strict=True):
        part = list(_group(title, group, width, room))
        room -= len(part)
        lines += part
    if not found.differences:
        lines += [(), (Span(_SAME_GOAL),)]
    return [*lines, *foot]


def _head_lines(found: Comparison, width: int) -> Iterator[Line]:
    goal = str(found.first.goal)
    yield (Span(f"{goal}: ", "strong"), Span(found.first.goal.text))
    for letter, one in (("A", found.first), ("B", found.second)):
        verdict = str(one.verdict)
        name = one.case.machine.name
        text = f"{letter}  {name}: {verdict}. {one.summary()}"
        first, *rest = wrapped(text, width - 3)
        yield (Span(first),)
        yield from ((Span(f"   {line}"),) for line in rest)
    for a, b in found.paths:
        yield (Span(f"   {a.title}: "), Span(f"A {a.word}", str(a.verdict)), Span(", "),
               Span(f"B {b.word}", str(b.verdict)))  # fmt: skip


def _group(title: str, group: Sequence[Difference], width: int, room: int) -> Iterator[Line]:
    """Yield a heading and three lines for each check, as far as they fit; the rest by name."""
    if not group or room < 3:
        return
    yield ()
    yield (Span(title, "strong"),)
    room -= 3
    left = list(group)
    while left and room >= 3 + bool(left[1:]):
        one = left.pop(0)
        yield (Span(f"  {one.check}"), Span(f"  {one.title}", "faint"))
        for letter, side in (("A", one.first), ("B", one.second)):
            yield (Span(f"    {letter} "), *_side(side, width - 6))
        room -= 3
    if left:
        names = ", ".join(one.check for one in left)
        yield from (
            (Span(line),) for line in wrapped(f"  Also: {names}.", width - 3)[: max(room, 1)]
        )


def _side(findings: Sequence[Finding], width: int) -> Iterator[Span]:
    """Yield the worst finding of a side, and how many more there are."""
    if not findings:
        yield Span("not judged", "faint")
        return
    groups = group_findings(findings)
    worst = groups[0].finding
    about = f" ({groups[0].about})" if groups[0].about else ""
    more = f"; {len(groups) - 1} more" if len(groups) > 1 else ""
    word = str(worst.verdict)
    yield Span(f"{word:<8}", word)
    yield Span(one_line(f"{worst.found}{about}{more}")[: width - 8])


def _foot_lines(found: Comparison, width: int) -> Iterator[Line]:
    text = f"{found.same} checks agree."
    if found.readings:
        text += f" {len(found.readings)} readings differ; --json names them."
    yield from paragraph(text, width - 3, "", "faint")
