"""Serialization of NICs, experiments and comparisons for views: plain values, bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doctor.experiments.overrule import TITLES
from ...doctor.format.nics import NicMap, table_rows
from ...doctor.format.summary import tried_kinds
from ...doctor.snapshot_comparison import Comparison, Difference
from .diagnosis_task import Request, Result
from .serialize import truncate

if TYPE_CHECKING:
    from ..base.page_input import Json

_MAX_ROWS = 64


def serialize_request(request: Request, at: list[int]) -> Json:
    """Return the running request and its progress."""
    return {"check": request.check or request.experiment, "at": at}


def serialize_nics(found: NicMap | None) -> Json | None:
    """Return the table and the answer."""
    if found is None or not found.choices:
        return None
    header, *rows = table_rows(found)
    return {"header": header, "rows": rows[:_MAX_ROWS], "answer": found.answer}


def serialize_experiments(result: Result) -> list[Json]:
    """Return each kind of experiment: what it does, how many, and how they ended."""
    kinds: dict[str, list[str]] = {}
    for experiment in result.planned:
        kinds.setdefault(experiment.name, []).append(experiment.does)
    ended = {kind.name: kind for kind in tried_kinds(result.diagnosis.tried)}
    return [
        {
            "name": name,
            "title": TITLES[name],
            "does": truncate(does[0] + (f"; and {len(does) - 1} more" if len(does) > 1 else "")),
            "verdict": str(ended[name].verdict) if name in ended else "",
            "text": truncate(ended[name].text) if name in ended else "",
        }
        for name, does in kinds.items()
    ]


def serialize_comparison(found: Comparison | None) -> Json | None:
    """Return the two names, the data paths and the checks that differ, relevant ones first."""
    if found is None:
        return None
    both = (found.first, found.second)
    return {
        "names": [truncate(diagnosis.case.machine.name) for diagnosis in both],
        "verdicts": [str(diagnosis.verdict) for diagnosis in both],
        "rows": [_row(difference) for difference in found.differences[:_MAX_ROWS]],
        "same": found.same,
    }


def _row(difference: Difference) -> Json:
    both = (difference.first, difference.second)
    sides = [truncate(findings[0].found) if findings else "not judged" for findings in both]
    verdicts = [str(verdict) for verdict in difference.verdicts]
    return {
        "check": difference.check,
        "decides": difference.is_relevant,
        "verdicts": verdicts,
        "found": sides,
    }
