# SPDX-License-Identifier: Apache-2.0
"""Serialization of NICs and experiments for views: plain values, bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doctor.experiments.overrule import TITLES
from ...doctor.format.nics import NicMap, table_rows
from ...doctor.format.summary import tried_kinds
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
