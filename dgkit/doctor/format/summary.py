"""What a diagnosis comes to, in words: the same for the terminal, a notebook's card and a panel."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..collect.snapshot import Recorded
from ..data_paths import Way
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from ..machine import Machine

__all__ = [
    "Entry",
    "by",
    "clean",
    "entries",
    "headline",
    "needed",
    "origins",
    "proviso",
]

_SUBJECTS = 4  # that are named; of more than that, the rest are counted


class Entry(msgspec.Struct, frozen=True):
    """Findings that differ in nothing but what they are about: eight GPUs, one line."""

    finding: Finding
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """The subjects, as far as there is room."""
        named = ", ".join(self.subjects[:_SUBJECTS])
        more = len(self.subjects) - _SUBJECTS
        return f"{named} and {more} more" if more > 0 else named


def clean(text: str) -> str:
    """Without what would move a terminal's cursor: what a machine said may hold anything."""
    return "".join(char if char.isprintable() else " " for char in text)


def entries(findings: Iterable[Finding]) -> list[Entry]:
    """In their order, those that say the same put together."""
    alike: dict[Finding, list[str]] = {}
    for one in findings:
        alike.setdefault(msgspec.structs.replace(one, subject=""), []).append(one.subject)
    return [
        Entry(one, tuple(dict.fromkeys(name for name in subjects if name)))
        for one, subjects in alike.items()
    ]


def origins(diagnosis: Diagnosis) -> list[str]:
    """Where the readings come from, a line a snapshot; nothing for a machine that was read now."""
    case = diagnosis.case
    sides = (one for one in (case.host, case.dpu, case.machine) if one is not None)
    return [line for one in dict.fromkeys(sides) if (line := _origin(one))]


def _origin(machine: Machine) -> str:
    if not isinstance(machine.read, Recorded):
        return ""
    known = machine.read.snapshot
    made, _, after = known.source.partition(":")
    if made == "synthetic":
        return f"synthetic machine: {after.strip() or 'made by hand'} ({machine.name})"
    when = f" on {known.taken}" if known.taken else ""
    by = f" by dgkit {known.dgkit}" if known.dgkit else ""
    said = "" if known.source in ("", "recorded") else f" ({known.source})"
    return f"recorded{when}{by}: {machine.name}{said}"


def headline(diagnosis: Diagnosis) -> str:
    """The summary; and, where something fails and the verdict is not that, why it is not."""
    failed = any(one.verdict is Verdict.FAIL for one in diagnosis.findings)
    spared = failed and diagnosis.ways and diagnosis.verdict is not Verdict.FAIL
    return diagnosis.summary() + (" What fails here blocks other ways only." if spared else "")


def by(way: Way) -> str:
    """The checks that block a way or warn of it, as the end of a sentence that says so; else why it
    is as it is, but for its proviso."""
    checks = way.blocked_by or way.warned_by
    if checks:
        return f" by {', '.join(checks)}" if way.blocked_by else f": {', '.join(checks)}"
    return f": {way.why}" if way.why and way.why != way.proviso else ""


def proviso(diagnosis: Diagnosis, way: Way) -> str:
    """Why a way should work, rather than works; that of the best is in the summary already."""
    return "" if way is diagnosis.best else way.proviso


def needed(finding: Finding) -> str:
    """What it would take, as the end of a sentence; for what does not apply: what to ask for."""
    if not finding.needed:
        return ""
    word = "try" if finding.verdict is Verdict.NOT_APPLICABLE else "needed"
    return f"; {word}: {finding.needed}"
