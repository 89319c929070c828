# SPDX-License-Identifier: Apache-2.0
"""Serialization of a Diagnosis for views: plain values, bounded for any machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...doctor.collect.snapshot import RecordedReader
from ...doctor.data_paths import DataPath
from ...doctor.diagnosis import Diagnosis
from ...doctor.facts.bluefield import side
from ...doctor.format.summary import FindingGroup, group_findings, headline, proviso
from ...doctor.machine import Machine
from ...doctor.references import Source
from ...units import one_line

if TYPE_CHECKING:
    from ..base.page_input import Json

MAX_FINDINGS = 300  # the worst ones are kept
THIS_MACHINE = {"name": "this machine", "kind": "", "source": "", "side": ""}
_MAX_TEXT = 2000  # characters
_MAX_LINES = 40  # commands, sources and subjects of a finding


def serialize_diagnosis(diagnosis: Diagnosis) -> Json:
    """Return a diagnosis as plain values.

    Findings that differ only in their subject are grouped; a group's `key` is the same in the next
    run.
    """
    groups = group_findings(diagnosis.findings)
    numbers = Counter(finding.verdict for finding in diagnosis.findings)
    return {
        "goal": str(diagnosis.goal),
        "goal_text": diagnosis.goal.text,
        "chosen": diagnosis.chosen,
        "verdict": str(diagnosis.verdict),
        "summary": truncate(headline(diagnosis)),
        "data_paths": [_data_path(path, proviso(diagnosis, path)) for path in diagnosis.data_paths],
        "findings": list(_finding_rows(groups[:MAX_FINDINGS])),
        "left_out": max(0, len(groups) - MAX_FINDINGS),
        "counts": diagnosis.counts,
        "numbers": {str(verdict): number for verdict, number in numbers.items()},
        "took_s": round(diagnosis.took_s, 1),
    }


def serialize_machine(machine: Machine) -> dict[str, str]:
    """Return a snapshot's file, side, source and kind: `recorded` or `synthetic`."""
    if not isinstance(machine.read, RecordedReader):
        return THIS_MACHINE
    snapshot = machine.read.snapshot
    kind, _, model = snapshot.source.partition(":")
    synthetic = kind == "synthetic"
    by = f"by dgkit {snapshot.dgkit}" if snapshot.dgkit else ""
    recorded = " ".join(word for word in (snapshot.taken, by) if word)
    return {
        "name": truncate(machine.name),
        "kind": "synthetic" if synthetic else "recorded",
        "source": truncate(model.strip() if synthetic else recorded),
        "side": machine.know(side),
    }


def require_different_sides(machines: list[dict[str, str]]) -> None:
    """Raise ValueError if two serialized machines are hosts, or two are DPUs."""
    for side_name, kind in (("host", "hosts"), ("dpu", "the Arm cores of a DPU")):
        names = [machine["name"] for machine in machines if machine["side"] == side_name]
        if len(names) > 1:
            both = f"{' and '.join(names)} are both {kind}"
            raise ValueError(f"{both}: judge a host and a DPU together")


def _data_path(path: DataPath, proviso: str) -> dict[str, str]:
    why = path.why if path.why != path.proviso else ""
    return {
        "title": truncate(path.title), "what": truncate(path.what), "verdict": str(path.verdict),
        "word": path.word, "why": truncate(f"{why} {proviso}".strip()),
        "checks": ", ".join(path.blocked_by or path.warned_by),
    }  # fmt: skip


def _finding_rows(groups: Sequence[FindingGroup]) -> Iterator[Json]:
    repeated: Counter[str] = Counter()
    for group in groups:
        finding = group.finding
        name = truncate(f"{finding.check}/{finding.side}/{' '.join(group.subjects)}")
        repeated[name] += 1
        texts = ("found", "needed", "why", "disagree")
        yield {
            "key": f"{name}/{repeated[name]}",
            "verdict": str(finding.verdict),
            "check": finding.check,
            "side": finding.side,
            "title": truncate(finding.title),
            "subject": truncate(group.about),
            **{text: truncate(getattr(finding, text)) for text in texts},
            "remedy": [truncate(line) for line in finding.remedy[:_MAX_LINES]],
            "sources": [_source(source) for source in finding.sources[:_MAX_LINES]],
        }


def _source(source: Source) -> dict[str, str]:
    return {"text": str(source), "url": source.url}


def truncate(text: str, max_length: int = _MAX_TEXT) -> str:
    """Return a text truncated and on one line, so that it is one command in a terminal."""
    return one_line(text if len(text) <= max_length else f"{text[:max_length]}…")
