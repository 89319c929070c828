"""A diagnosis for people: plain text, and a card for a notebook (see dgkit/html_cards.py)."""

from __future__ import annotations

import html as escaping
from collections.abc import Iterable, Iterator

from ... import html_cards
from ...html_cards import Html
from ..data_paths import Way
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..references import Source
from .summary import Entry, by, clean, entries, headline, needed, origins, proviso
from .terminal import WIDTH, page

__all__ = ["html", "text"]

_QUIET = (Verdict.OK, Verdict.NOT_APPLICABLE)
_ELSEWHERE = "nothing: it is looked at on the other side, host or DPU"
_GREY = "#8a8a8a"
_BLOCK = (
    f"font-size:12px;margin:8px 0px 0px 0px;padding:6px 4px 0px 4px;border-top:1px solid {_GREY}"
)


def text(diagnosis: Diagnosis, *, verbose: bool = False, width: int = WIDTH) -> str:
    """The page of `dgkit doctor`, without colours."""
    lines = page(diagnosis, verbose=verbose, width=width)
    return "\n".join("".join(span.text for span in line) for line in lines)


def html(diagnosis: Diagnosis) -> Html:
    """A card: the verdict, the ways, what blocks them and the commands; the rest folded away."""
    loud = [one for one in diagnosis.findings if one.verdict not in _QUIET]
    quiet = [one for one in diagnosis.findings if one.verdict in _QUIET]
    body = _ways(diagnosis) + "".join(_entry(entry) for entry in entries(loud))
    if quiet:
        body += _folded(f"{len(quiet)} that are ok or do not apply", _table(entries(quiet)))
    return html_cards.card(
        f"dgkit doctor: {diagnosis.goal}",
        list(_rows(diagnosis)),
        badge=_badge(diagnosis.verdict),
        body=Html(body),
        note="synthetic machine" if _is_synthetic(diagnosis) else "",
    )


def _rows(diagnosis: Diagnosis) -> Iterator[tuple[str, object]]:
    if diagnosis.ways:
        yield "In short", clean(headline(diagnosis))
    chosen = f" ({diagnosis.chosen})" if diagnosis.chosen else ""
    yield "Goal", f"{diagnosis.goal.text}{chosen}"
    yield "Found", diagnosis.counts if diagnosis.findings else _ELSEWHERE
    for line in origins(diagnosis):
        yield "Machine", clean(line)


def _is_synthetic(diagnosis: Diagnosis) -> bool:
    return any(line.startswith("synthetic") for line in origins(diagnosis))


def _badge(verdict: Verdict, word: str = "") -> Html:
    whole = (word or str(verdict)).replace(" ", "\N{NO-BREAK SPACE}")
    return html_cards.badge(whole, warn=verdict not in _QUIET)


def _ways(diagnosis: Diagnosis) -> str:
    def why(way: Way) -> str:
        return clean(f"{by(way)[1:].strip()} {proviso(diagnosis, way)}".strip())

    rows = [(way.title, _badge(way.verdict, way.word), why(way)) for way in diagnosis.ways]
    header = ("way", "", "why")
    return (
        html_cards.table("Ways of moving bytes, the better ones first", header, rows)
        if rows
        else ""
    )


def _entry(entry: Entry) -> str:
    one = entry.finding
    about = f", {entry.about}" if entry.about else ""
    side = f"{one.side} " if one.side == "dpu" else ""
    found = _text(f"{one.title}{about}: {one.found}{needed(one)}")
    name = f'<span style="opacity:0.75">{_text(side + one.check)}</span>'
    said = "".join(f"<div>{_text(line)}</div>" for line in (one.why, one.disagree) if line)
    return (
        f'<div style="{_BLOCK}"><div>{_badge(one.verdict)} <strong>{found}</strong> {name}</div>'
        f"{said}{_commands(one)}{_sources(one.sources)}</div>"
    )


def _commands(finding: Finding) -> str:
    lines = "\n".join(_text(command) for command in finding.remedy)
    return f'<pre style="margin:4px 0px;white-space:pre-wrap">{lines}</pre>' if lines else ""


def _sources(sources: Iterable[Source]) -> str:
    return "".join(
        f'<div style="font-size:11px;opacity:0.75">Source: {_link(one)}</div>' for one in sources
    )


def _link(source: Source) -> str:
    words = _text(str(source))
    if not source.url.startswith("https://"):
        return words
    return f'<a href="{escaping.escape(source.url)}">{words}</a>'


def _table(found: Iterable[Entry]) -> str:
    header = ("verdict", "check", "found")
    rows = [
        (str(e.finding.verdict), e.finding.check, clean(f"{e.about} {_found(e.finding)}".strip()))
        for e in found
    ]
    return html_cards.table("", header, rows)


def _found(one: Finding) -> str:
    return one.found + (needed(one) if one.verdict is Verdict.NOT_APPLICABLE else "")


def _folded(title: str, inside: str) -> str:
    return f'<details style="{_BLOCK}"><summary>{_text(title)}</summary>{inside}</details>'


def _text(text: str) -> str:
    return escaping.escape(clean(text))
