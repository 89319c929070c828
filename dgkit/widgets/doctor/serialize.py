"""What a view is told of a diagnosis: plain values, bounded whatever the machine is like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...doctor.collect.snapshot import Recorded
from ...doctor.data_paths import Way
from ...doctor.diagnosis import Diagnosis
from ...doctor.facts.side import side
from ...doctor.format.summary import Entry, clean, entries, headline, proviso
from ...doctor.machine import Machine
from ...doctor.references import Source

__all__ = ["ENTRIES", "HERE", "cut", "described", "machine_told", "one_of_a_side"]

ENTRIES = 300  # the worst of them
HERE = {"name": "this machine", "kind": "", "source": "", "side": ""}
_TEXT, _LINES = 2000, 40  # characters of a text; commands, sources and subjects of a finding


def described(diagnosis: Diagnosis) -> dict[str, Any]:
    """Findings that differ in their subject alone are one; a `key` is the same in the next run."""
    found = entries(diagnosis.findings)
    return {
        "goal": str(diagnosis.goal),
        "goal_text": diagnosis.goal.text,
        "chosen": diagnosis.chosen,
        "verdict": str(diagnosis.verdict),
        "summary": cut(headline(diagnosis)),
        "ways": [_way(one, proviso(diagnosis, one)) for one in diagnosis.ways],
        "findings": list(_findings(found[:ENTRIES])),
        "left_out": max(0, len(found) - ENTRIES),
        "counts": diagnosis.counts,
        "numbers": {
            str(one): n for one, n in Counter(f.verdict for f in diagnosis.findings).items()
        },
        "took_s": round(diagnosis.took_s, 1),
    }


def machine_told(machine: Machine) -> dict[str, str]:
    """A snapshot's file and side, and how it came to be: `kind` is recorded or synthetic."""
    if not isinstance(machine.read, Recorded):
        return HERE
    known = machine.read.snapshot
    made, _, after = known.source.partition(":")
    synthetic = made == "synthetic"
    by = f"by dgkit {known.dgkit}" if known.dgkit else ""
    source = after.strip() if synthetic else " ".join(word for word in (known.taken, by) if word)
    return {
        "name": cut(machine.name), "kind": "synthetic" if synthetic else "recorded",
        "source": cut(source), "side": machine.know(side),
    }  # fmt: skip


def one_of_a_side(machines: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same. ValueError: two of them are hosts, or DPUs."""
    for which, what in (("host", "hosts"), ("dpu", "the Arm cores of a DPU")):
        names = [one["name"] for one in machines if one["side"] == which]
        if len(names) > 1:
            said = f"{' and '.join(names)} are both {what}"
            raise ValueError(f"{said}: judge a host and a DPU together")
    return machines


def _way(way: Way, proviso: str) -> dict[str, str]:
    why = way.why if way.why != way.proviso else ""
    return {
        "title": cut(way.title), "what": cut(way.what), "verdict": str(way.verdict),
        "word": way.word, "why": cut(f"{why} {proviso}".strip()),
        "checks": ", ".join(way.blocked_by or way.warned_by),
    }  # fmt: skip


def _findings(found: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    known: Counter[str] = Counter()
    for entry in found:
        one = entry.finding
        name = f"{one.check}/{one.side}/{' '.join(entry.subjects)[:_TEXT]}"
        known[name] += 1
        yield {
            "key": f"{name}/{known[name]}",
            "verdict": str(one.verdict),
            "check": one.check,
            "side": one.side,
            "title": cut(one.title),
            "subject": cut(entry.about),
            **{each: cut(getattr(one, each)) for each in ("found", "needed", "why", "disagree")},
            "remedy": [cut(line) for line in one.remedy[:_LINES]],
            "sources": [_source(source) for source in one.sources[:_LINES]],
        }


def _source(source: Source) -> dict[str, str]:
    return {"text": str(source), "url": source.url}


def cut(text: str, most: int = _TEXT) -> str:
    """On one line: what is copied to a terminal must not hold another command."""
    return clean(text if len(text) <= most else f"{text[:most]}…")
