# SPDX-License-Identifier: Apache-2.0
"""The chain from readings to the verdict, for `dgkit doctor --explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator

import msgspec

from ...units import one_line
from ..collect.reader import Reading, Trace
from ..data_paths import DataPath
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..registry import checks
from .summary import group_findings, needed_text
from .terminal import WIDTH, Line, Span

_MAX_KEYS, _MAX_FACTS = 14, 8  # shown for a check; for the rest, only their number
_LABEL = 10
_FAULTS = {
    "absent": "there is none",
    "denied": "not for this user",
    "late": "no answer in time",
    "failed": "failed",
    "unrecorded": "not in this recording",
}


def explain(diagnosis: Diagnosis, names: Collection[str] = (), *, width: int = WIDTH) -> list[Line]:
    """Return for each check what it read, the facts it derived, its finding, and what follows.

    Args:
        diagnosis: A run of all checks.
        names: Checks to explain; if empty, those that fail, warn or are unknown.
        width: Maximum length of a line.
    """
    lines: list[Line] = []
    asks = {check.name: check.asks for check in checks()}
    explained: set[tuple[str, str]] = set()
    for group in group_findings(diagnosis.findings):
        finding = group.finding
        if names and finding.check not in names:
            continue
        if not names and finding.verdict < Verdict.UNKNOWN:
            continue
        about = f", {group.about}" if group.about else ""
        head = one_line(f"{finding.side} {finding.check}  {finding.title}{about}")
        lines += [(Span(str(finding.verdict), str(finding.verdict)), Span(f"  {head}"))]
        place = (finding.check, finding.side)
        if place not in explained:
            lines += _row("asks", asks.get(finding.check, ""), width)
            lines += _trace_lines(diagnosis.traces.get(place, Trace()), width)
        explained.add(place)
        lines += [*_result_lines(finding, width), *_effect(diagnosis, finding, width), ()]
    return [*lines, *_verdict(diagnosis, width)]


def _row(label: str, text: str, width: int) -> Iterator[Line]:
    wrapped = textwrap.wrap(one_line(text), max(width - _LABEL - 2, 20), break_on_hyphens=False)
    for at, line in enumerate(wrapped):
        yield (Span(f"  {label if not at else '':<{_LABEL}}", "faint"), Span(line))


def _trace_lines(trace: Trace, width: int) -> Iterator[Line]:
    read = list(trace.readings.items())
    for at, (key, reading) in enumerate(read[:_MAX_KEYS]):
        text = f"{key}: {_content(reading)}"
        yield from _row("read" if not at else "", _short(text, width), width)
    if len(read) > _MAX_KEYS:
        yield from _row("", f"and {len(read) - _MAX_KEYS} more", width)
    facts = [(name, value) for name, value in trace.facts.items() if value not in (None, "", ())]
    for at, (name, value) in enumerate(facts[:_MAX_FACTS]):
        text = _short(f"{name} = {_value_text(value)}", width)
        yield from _row("facts" if not at else "", text, width)
    if len(facts) > _MAX_FACTS:
        yield from _row("", f"and {len(facts) - _MAX_FACTS} more", width)


def _short(text: str, width: int) -> str:
    most = max(width - _LABEL - 2, 20)
    text = " ".join(one_line(text).split())
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def _content(reading: Reading) -> str:
    """Return the content of a reading, shortened."""
    if reading.fault:
        return f"{_FAULTS[reading.fault]} ({reading.why})"
    if reading.data is not None:
        return msgspec.json.encode(reading.data).decode()
    if reading.names:
        return f"{len(reading.names)} names: {', '.join(reading.names)}"
    if reading.raw:
        return f"{len(reading.raw)} bytes"
    lines = [line.strip() for line in (reading.text or reading.said).splitlines() if line.strip()]
    code = f"exit status {reading.code}, " if reading.code else ""
    more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
    return f"{code}{lines[0] if lines else 'empty'}{more}"


def _value_text(value: object) -> str:
    if isinstance(value, Exception):
        return f"failed: {value!r}"
    if isinstance(value, (str, int, bool)):
        return str(value)
    return repr(value)


def _result_lines(finding: Finding, width: int) -> Iterator[Line]:
    yield from _row("found", f"{finding.found}{needed_text(finding)}", width)
    since = f"{finding.verdict}: {finding.why}" if finding.why else str(finding.verdict)
    yield from _row("so", since, width)
    yield from _row("", f"Documents disagree: {finding.disagree}" * bool(finding.disagree), width)
    for at, source in enumerate(finding.sources):
        link = f" <{source.url}>" if source.url else ""
        yield from _row("source" if not at else "", f"{source}{link}", width)


def _effect(diagnosis: Diagnosis, finding: Finding, width: int) -> Iterator[Line]:
    """Yield the check that causes a finding, and the effect of the finding on the data paths."""
    if finding.follows:
        yield from _row("cause", f"{finding.follows}: fix this first", width)
    blocked = [path.title for path in diagnosis.data_paths if finding.check in path.blocked_by]
    warned = [path.title for path in diagnosis.data_paths if finding.check in path.warned_by]
    if blocked:
        yield from _row("blocks", "; ".join(blocked), width)
    if warned:
        yield from _row("warns of", "; ".join(warned), width)
    if finding.verdict >= Verdict.WARN and not blocked and not warned:
        yield from _row("blocks", "no data path", width)


def _verdict(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    """Yield the data paths to the goal, and the rule that gives the exit code from them."""
    word = str(diagnosis.verdict)
    yield (Span(word, word), Span(f"  {diagnosis.goal}, exit code {diagnosis.exit_code}"))
    serving = [path for path in diagnosis.data_paths if path.serves]
    for at, path in enumerate(serving):
        yield from _row("paths" if not at else "", f"{path.title}: {_path_text(path)}", width)
    yield from _row("rule", _rule_text(diagnosis, serving), width)


def _path_text(path: DataPath) -> str:
    by = f" by {', '.join(path.blocked_by)}" if path.blocked_by else ""
    root = f"; first: {', '.join(path.causes)}" if path.causes != path.blocked_by else ""
    warned = f": {', '.join(path.warned_by)}" if path.warned_by else ""
    return f"{path.word}{by}{root}{warned}"


def _rule_text(diagnosis: Diagnosis, serving: list[DataPath]) -> str:
    verdict, works = diagnosis.verdict, any(path.works for path in serving)
    if verdict is Verdict.FAIL and serving and not works:
        return "No data path to the goal works: 1."
    if verdict is Verdict.FAIL:
        return "A check fails on which no data path depends: 1."
    if verdict is Verdict.WARN:
        failed = any(finding.verdict is Verdict.FAIL for finding in diagnosis.findings)
        blocked = ", and what fails blocks other paths only" * failed
        return f"A data path to the goal works{blocked}; there are warnings: 5."
    if verdict is Verdict.UNKNOWN:
        return "Whether a data path works, or the answer of a check, is not known: 6."
    unread = {finding.check for finding in diagnosis.findings if finding.verdict is Verdict.UNKNOWN}
    more = f"; {', '.join(sorted(unread))}, without an answer, can only warn" if unread else ""
    return f"A data path to the goal works, and no check warns{more}: 0."
