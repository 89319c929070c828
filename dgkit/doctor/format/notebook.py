# SPDX-License-Identifier: Apache-2.0
"""Plain text and HTML of a Diagnosis, for `str()` and for notebooks (see dgkit/html_cards.py)."""

from __future__ import annotations

import html as escaping
from collections.abc import Iterable, Iterator

from ... import html_cards
from ...html_cards import Html
from ...units import one_line, plural
from ..data_paths import DataPath
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..references import Source
from .summary import (
    FindingGroup,
    group_findings,
    headline,
    needed_text,
    origins,
    other_goals,
    proviso,
    reason,
)
from .terminal import WIDTH, page

_QUIET = (Verdict.OK, Verdict.NOT_APPLICABLE)
_OTHER_SIDE = "none: these checks run on the other side, host or DPU"
_GREY = "#8a8a8a"
_COLOURS = {  # same as in the panel: widgets/doctor/doctor.css
    Verdict.FAIL: "#c62828",
    Verdict.WARN: "#a34a00",
    Verdict.UNKNOWN: "#6a4c93",
    Verdict.OK: "#1b6e3a",
    Verdict.NOT_APPLICABLE: "#5f6368",
}
_BLOCK = (
    f"font-size:12px;margin:8px 0px 0px 0px;padding:6px 4px 0px 4px;border-top:1px solid {_GREY}"
)


def text(diagnosis: Diagnosis, *, verbose: bool = False, width: int = WIDTH) -> str:
    """Return the page of `dgkit doctor`, without colours."""
    lines = page(diagnosis, verbose=verbose, width=width)
    return "\n".join("".join(span.text for span in line) for line in lines)


def html(diagnosis: Diagnosis) -> str:
    """Return a card: verdict, data paths, causes with their commands.

    Consequences of a cause, findings that are OK and checks that do not apply are collapsed.
    """
    checks = {finding.check for finding in diagnosis.findings}
    loud = [finding for finding in diagnosis.findings if finding.verdict not in _QUIET]
    quiet = [finding for finding in diagnosis.findings if finding.verdict in _QUIET]
    following = [finding for finding in loud if finding.follows in checks]
    body = _data_paths(diagnosis) + _groups(
        finding for finding in loud if finding.follows not in checks
    )
    if following:
        verb = "follows" if len(following) == 1 else "follow"
        title = f"{plural(len(following), 'finding')} that {verb} from these"
        body += _collapsed(title, _groups(following))
    if quiet:
        verb = "is" if len(quiet) == 1 else "are"
        title = f"{plural(len(quiet), 'finding')} that {verb} ok or not applicable"
        body += _collapsed(title, _table(group_findings(quiet)))
    return html_cards.card(
        f"dgkit doctor: {diagnosis.goal}",
        list(_head_rows(diagnosis)),
        badge=_badge(diagnosis.verdict),
        body=Html(body),
        note="synthetic machine" if _is_synthetic(diagnosis) else "",
    )


def _head_rows(diagnosis: Diagnosis) -> Iterator[tuple[str, object]]:
    if diagnosis.data_paths:
        yield "Summary", one_line(headline(diagnosis))
    yield "Goal", diagnosis.goal.text
    if diagnosis.chosen:
        others = f"other goals: {other_goals(diagnosis)}"
        yield "Chosen because", f"{diagnosis.chosen}; {others}"
    yield "Findings", diagnosis.counts if diagnosis.findings else _OTHER_SIDE
    for line in origins(diagnosis):
        yield "Machine", one_line(line)


def _is_synthetic(diagnosis: Diagnosis) -> bool:
    return any(line.startswith("synthetic") for line in origins(diagnosis))


def _badge(verdict: Verdict, word: str = "") -> Html:
    label = (word or str(verdict)).replace(" ", "\N{NO-BREAK SPACE}")
    return html_cards.badge(label, back=_COLOURS[verdict])


def _data_paths(diagnosis: Diagnosis) -> str:
    def why(path: DataPath) -> str:
        return one_line(f"{reason(path)[1:].strip()} {proviso(diagnosis, path)}".strip())

    rows = [
        (path.title, _badge(path.verdict, path.word), why(path)) for path in diagnosis.data_paths
    ]
    header = ("data path", "", "why")
    return html_cards.table("Data paths, best first", header, rows) if rows else ""


def _groups(findings: Iterable[Finding]) -> str:
    return "".join(_group_html(group) for group in group_findings(findings))


def _group_html(group: FindingGroup) -> str:
    finding = group.finding
    about = f", {group.about}" if group.about else ""
    side = f"{finding.side} " if finding.side == "dpu" else ""
    found = _escaped(f"{finding.title}{about}: {finding.found}{needed_text(finding)}")
    cause = f", follows from {finding.follows}" if finding.follows else ""
    name = f'<span style="opacity:0.75">{_escaped(side + finding.check + cause)}</span>'
    reasons = (finding.why, finding.disagree)
    details = "".join(f"<div>{_escaped(line)}</div>" for line in reasons if line)
    badge = _badge(finding.verdict)
    return (
        f'<div style="{_BLOCK}"><div>{badge} <strong>{found}</strong> {name}</div>'
        f"{details}{_commands(finding)}{_sources_html(finding.sources)}</div>"
    )


def _commands(finding: Finding) -> str:
    lines = "\n".join(_escaped(command) for command in finding.remedy)
    return f'<pre style="margin:4px 0px;white-space:pre-wrap">{lines}</pre>' if lines else ""


def _sources_html(sources: Iterable[Source]) -> str:
    return "".join(
        f'<div style="font-size:11px;opacity:0.75">Source: {_source_link(source)}</div>'
        for source in sources
    )


def _source_link(source: Source) -> str:
    label = _escaped(str(source))
    if not source.url.startswith("https://"):
        return label
    # the browser's default blue is hard to read on a dark theme
    colour = "color:inherit;color:var(--jp-content-link-color,inherit)"
    return f'<a href="{escaping.escape(source.url)}" style="{colour}">{label}</a>'


def _table(groups: Iterable[FindingGroup]) -> str:
    header = ("verdict", "check", "found")
    return html_cards.table("", header, [_group_row(group) for group in groups])


def _group_row(group: FindingGroup) -> tuple[str, str, str]:
    finding = group.finding
    more = needed_text(finding) if finding.verdict is Verdict.NOT_APPLICABLE else ""
    found = one_line(f"{group.about} {finding.found}{more}".strip())
    return str(finding.verdict), finding.check, found


def _collapsed(title: str, content: str) -> str:
    return f'<details style="{_BLOCK}"><summary>{_escaped(title)}</summary>{content}</details>'


def _escaped(text: str) -> str:
    return escaping.escape(one_line(text))
