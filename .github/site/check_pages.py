# SPDX-License-Identifier: Apache-2.0
"""Pages of the doctor's checks: what each asks, what it said of machines, its sources.

The machines are those of tests/doctor/published: each was described in a public thread or page, and
its readings were made from that text.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants
    from re import _parser as sre_parse
else:
    import sre_constants
    import sre_parse

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from doctor.published import FOLDERS, Published, load_all  # noqa: E402

from dgkit.doctor import registry  # noqa: E402
from dgkit.doctor.finding import Finding, Verdict  # noqa: E402
from dgkit.doctor.runner import diagnose  # noqa: E402
from dgkit.doctor.symptom_table import SYMPTOMS  # noqa: E402

__all__ = ["check_pages"]

MOST = 6  # findings of a page
Seen = tuple[Finding, Published]
_OF_A_MACHINE = re.compile(  # two findings may differ in these
    r"\bLinux \d\S+|\b(?:Kepler|Maxwell|Pascal|Volta)\b|\d+|[0-9a-f]{4}:[0-9a-f:.]+"
)


def check_pages() -> Iterator[tuple[registry.Check, str]]:
    """Yield each check and the Markdown text of its page."""
    seen = _findings()
    for check in registry.checks():
        said = seen[check.name]
        parts = [*_about(check), *_said(said), *_error_texts(check.name), *_sources(said)]
        yield check, "\n".join(parts)


def _findings() -> dict[str, list[Seen]]:
    """Judge the published machines; return the distinct warnings and failures of each check."""
    kept: dict[str, dict[tuple[Verdict, str], Seen]] = defaultdict(dict)
    for machine in (each for folder in FOLDERS for each in load_all(folder)):
        judged = diagnose([machine.machine()], goal=machine.goal, size=machine.size)
        for finding in judged.findings:
            if finding.verdict in (Verdict.WARN, Verdict.FAIL):
                alike = _OF_A_MACHINE.sub("#", finding.why or finding.found)
                kept[finding.check].setdefault((finding.verdict, alike), (finding, machine))
    worst_first = {name: sorted(each.values(), key=_worst) for name, each in kept.items()}
    return defaultdict(list, worst_first)


def _worst(seen: Seen) -> int:
    return -seen[0].verdict


def _about(check: registry.Check) -> Iterator[str]:
    goals = ", ".join(f"`{goal.value}`" for goal in sorted(check.goals, key=lambda g: g.value))
    yield f"# {check.name}\n\n**{check.title}.** {check.asks}\n"
    if about := (check.judge.__doc__ or "").strip():
        yield f"{about}\n"
    yield f"It counts for the goals {goals}, and runs on: {', '.join(check.sides)}.\n"
    yield f"```sh\ndgkit doctor {check.name} --verbose\n```\n"


def _said(said: list[Seen]) -> Iterator[str]:
    if not said:
        yield "No machine of a public thread has a warning or failure of it.\n"
        return
    yield "## What it says\n"
    yield "Findings on machines from public threads; devices and sizes are theirs.\n"
    for finding, machine in said[:MOST]:
        needed = f"; needed: {_text(finding.needed)}" if finding.needed else ""
        yield f"**{finding.verdict}**: {_text(finding.found)}{needed}. {_text(finding.why)}"
        yield f"([the thread]({machine.head['source']}))\n"
        if finding.remedy:
            yield "```{code-block} sh\n:class: remedy\n"
            yield "\n".join([*finding.remedy, "```", ""])


def _text(text: str) -> str:
    """Return a text of the doctor in which nothing is Markdown but code."""
    return re.sub(r"([\\*_<>\[\]#|$])", r"\\\1", text) if "`" not in text else text


def _error_texts(check: str) -> Iterator[str]:
    found = [each for each in SYMPTOMS if any(check in cause.checks for cause in each.causes)]
    if not found:
        return
    yield "## Error texts that it may explain\n"
    yield "`dgkit doctor --symptom TEXT` ranks their causes on your machine.\n"
    for symptom in found:
        texts = " or ".join(f"`` {each} ``" for each in _matched(symptom.pattern))
        yield f"- {symptom.program}: {texts} ([source]({symptom.source})). {symptom.means}"
    yield ""


def _matched(pattern: re.Pattern[str]) -> list[str]:
    """Return texts that a pattern matches, one for each alternative; "…" stands for any text."""
    texts = _texts_of(sre_parse.parse(pattern.pattern))
    return [re.sub("…+", "…", each) for each in texts[:MOST]]


def _texts_of(tree: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return the texts that a parsed pattern matches, without what may be left out."""
    texts = [""]
    for kind, value in tree:
        ends = [""]
        if kind is sre_constants.LITERAL:
            ends = [chr(value)]
        elif kind is sre_constants.SUBPATTERN:
            ends = _texts_of(value[-1])
        elif kind is sre_constants.BRANCH:
            ends = [each for branch in value[1] for each in _texts_of(branch)]
        elif kind is sre_constants.IN or (kind is sre_constants.MAX_REPEAT and value[1] > 1):
            ends = ["…"]
        texts = [text + end for text in texts for end in ends]
    return texts


def _sources(said: list[Seen]) -> Iterator[str]:
    sources: dict[Any, None] = {each: None for finding, _ in said for each in finding.sources}
    if not sources:
        return
    yield "## Documents\n"
    for each in sources:
        yield f"- [{each}]({each.url})" if each.url else f"- {each}"
    yield ""
