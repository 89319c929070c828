"""Cells of an nbgrader notebook: the student's solutions, and the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Test:
    """A test cell.

    Attributes:
        name: Its grade_id.
        source: Its code.
        points: Largest number of points.
    """

    name: str
    source: str
    points: float


def cells_of(path: Path) -> list[Mapping[str, Any]]:
    """Return the cells of a notebook file.

    Raises:
        ValueError: The file is not a notebook of format 4, or is larger than 10 MiB.
        OSError: The file cannot be read.
    """
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ValueError(f"{path} has {size} bytes; the limit is {_MAX_BYTES}")
    try:
        notebook = json.loads(path.read_bytes())
        cells = notebook["cells"]
        right = all(isinstance(cell["metadata"], dict) and cell["cell_type"] for cell in cells)
    except (ValueError, KeyError, TypeError, RecursionError):
        right = False
    if not right:
        raise ValueError(f"{path} is not a notebook of format 4")
    return list(cells)


def _source(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _marks(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    marks = cell["metadata"].get("nbgrader", {})
    code = cell["cell_type"] == "code" and isinstance(marks, Mapping)
    return marks if code and marks.get("grade_id") else {}


def solutions(cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return name and source of each solution cell; no other cells of a submission are run."""
    return [
        (str(marks["grade_id"]), _source(cell))
        for cell in cells
        if (marks := _marks(cell)) and marks.get("solution") and not marks.get("grade")
    ]


def tests(cells: Sequence[Mapping[str, Any]]) -> list[Test]:
    """Return the test cells of a notebook."""
    return [
        Test(str(marks["grade_id"]), _source(cell), float(marks.get("points", 0)))
        for cell in cells
        if (marks := _marks(cell)) and marks.get("grade") and not marks.get("solution")
    ]
