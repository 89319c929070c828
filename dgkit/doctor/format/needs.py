"""The page of `dgkit doctor --program NAME`, as styled lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..finding import printable
from ..program_needs import Answer
from .terminal import WIDTH, Line, Span

_LINES = 40  # of a screen


def needs_page(found: Answer, *, width: int = WIDTH) -> list[Line]:
    """Return the lines: the answer, then the settings or the cause."""
    lines = [*_wrap(found.sentence, width, "", "ok" if found.fine else "fail"), ()]
    part = [*_settings(found, width)] if found.fine else [*_cause(found, width)]
    room = _LINES - len(lines)
    if len(part) > room:
        part = [*part[: room - 1], (Span("... (all of it: --json)", "faint"),)]
    return [*lines, *part]


def _settings(found: Answer, width: int) -> Iterator[Line]:
    before = ""
    for setting in found.settings:
        yield (Span("  "), Span(printable(setting.command), "command"))
        about = f"{setting.why} <{setting.source}>"
        if about != before:
            yield from _wrap(about, width, "      ", "faint")
        before = about


def _cause(found: Answer, width: int) -> Iterator[Line]:
    cause = found.cause
    if cause is not None:
        about = f", {cause.subject}" if cause.subject else ""
        yield from _wrap(
            f"{cause.check}: {cause.title}{about}: {cause.found}. {cause.why}", width, "  "
        )
        for command in cause.remedy:
            style = "faint" if command.startswith("#") else "command"
            yield (Span("      "), Span(printable(command), style))
    yield from _wrap(f"First: dgkit doctor --goal {found.diagnosis.goal}", width, "  ", "faint")


def _wrap(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    lines = textwrap.wrap(printable(text), width - len(indent), break_on_hyphens=False)
    return ((Span(indent + line, style),) for line in lines)
