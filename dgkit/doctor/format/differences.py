"""The page of `dgkit doctor --compare`, as styled lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..finding import Finding, printable
from ..two_machines import Comparison, Difference
from .summary import group_findings
from .terminal import WIDTH, Line, Span

_LINES = 40  # of a screen
_SAME_GOAL = "Nothing that the doctor judges for this goal differs."


def comparison_page(found: Comparison, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: verdicts, data paths, what decides the goal, what else differs."""
    lines = [*_head(found, width)]
    deciding = [one for one in found.differences if one.decides]
    others = [one for one in found.differences if not one.decides]
    foot = [(), *_foot(found, width)]
    room = _LINES - len(lines) - len(foot)
    titles = ("Different verdicts, those that the goal depends on first", "Other differences")
    for title, group in zip(titles, (deciding, others), strict=True):
        part = list(_group(title, group, width, room))
        room -= len(part)
        lines += part
    if not found.differences:
        lines += [(), (Span(_SAME_GOAL),)]
    return [*lines, *foot]


def _head(found: Comparison, width: int) -> Iterator[Line]:
    goal = str(found.first.goal)
    yield (Span(f"{goal}: ", "strong"), Span(found.first.goal.text))
    for letter, one in (("A", found.first), ("B", found.second)):
        verdict = str(one.verdict)
        name = one.case.machine.name
        text = f"{letter}  {name}: {verdict}. {one.summary()}"
        first, *rest = _wrap(text, width)
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
        yield from ((Span(line),) for line in _wrap(f"  Also: {names}.", width)[: max(room, 1)])


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
    yield Span(printable(f"{worst.found}{about}{more}")[: width - 8])


def _foot(found: Comparison, width: int) -> Iterator[Line]:
    text = f"{found.same} checks agree."
    if found.readings:
        text += f" {len(found.readings)} readings differ; --json names them."
    yield from ((Span(line, "faint"),) for line in _wrap(text, width))


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width - 3) or [""]
