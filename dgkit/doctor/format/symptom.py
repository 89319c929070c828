"""The page of `dgkit doctor --symptom`, as styled lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..finding import printable
from ..symptoms import DMESG, EXCLUDED, FOUND, Explanation, Explanations, Match, RankedCause
from .terminal import WIDTH, Line, Span

_LINES = 40  # lines of a screen
_STYLES = {FOUND: "fail", EXCLUDED: "ok"}
_UNKNOWN = (
    "This text is not in the doctor's table. `dgkit doctor --report` prints what a thread needs."
)
_MOST_COMMANDS = 4
_PROGRAM = "The machine is fine as far as this text goes: what is left is the program."


def symptom_page(found: Explanations, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: each text, its causes on this machine, and the kernel's own words."""
    lines = [line for one in found.texts for line in (*_text(one, width), ())]
    if not found.texts:
        lines += [*_wrap(_UNKNOWN, width, ""), ()]
    foot = list(_kernel(found.kernel, found.unread, width))
    room = _LINES - len(foot)
    if len(lines) > room:
        lines = [*lines[: room - 1], (Span("... (all of it: --json)", "faint"),)]
    return [*lines, *foot]


def _text(explained: Explanation, width: int) -> Iterator[Line]:
    symptom = explained.match.symptom
    yield (Span(f"{symptom.program}: "), Span(_short(explained.match.line, width - 12), "strong"))
    yield from _wrap(symptom.means, width, "  ")
    yield (Span(f"  Source: {symptom.source}", "faint"),)
    excluded = [one for one in explained.causes if one.state == EXCLUDED]
    if explained.program_only:
        yield from _wrap(_PROGRAM, width, "  ", "ok")
    for cause in explained.causes:
        if cause.state != EXCLUDED:
            yield from _cause(cause, width)
    if excluded:
        texts = " ".join(one.cause.text for one in excluded)
        yield from _wrap(f"Excluded here: {texts}", width, "  ", "faint")


def _cause(cause: RankedCause, width: int) -> Iterator[Line]:
    first, *rest = _wrapped(cause.cause.text, width - 12)
    yield (Span(f"  {cause.state:<10}", _STYLES.get(cause.state, "unknown")), Span(first))
    yield from ((Span(" " * 12 + line),) for line in rest)
    if cause.state == FOUND:
        for one in cause.findings[:2]:
            about = f" ({one.subject})" if one.subject else ""
            yield from _wrap(f"{one.check}: {one.found}{about}. {one.why}", width, " " * 12)
    for command in cause.remedy[:_MOST_COMMANDS]:
        style = "faint" if command.startswith("#") else "command"
        yield (Span(" " * 12), Span(printable(command), style))


def _kernel(kernel: Sequence[Match], unread: str, width: int) -> Iterator[Line]:
    if unread:
        yield from _wrap(f"{unread} As root: {DMESG}", width, "", "faint")
    for match in kernel[:3]:
        yield (Span("The kernel said: "), Span(_short(match.line, width - 17), "strong"))
        yield from _wrap(match.symptom.means, width, "  ")


def _short(line: str, width: int) -> str:
    text = printable(line)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _wrap(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    return ((Span(indent + line, style),) for line in _wrapped(text, width - len(indent)))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), max(width, 20), break_on_hyphens=False) or [""]
