# SPDX-License-Identifier: Apache-2.0
"""Cells of an nbgrader notebook: the student's solutions, and the tests."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import read_limited
from ..json_input import read_json

_MAX_BYTES = 10 << 20
_MAX_NUMBER = 1e9
_UNSOLVED = "raise NotImplementedError"  # of a released solution cell
IMPORTS = "imports"  # name of the cell that has the imports of the student's own cells


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

    @property
    def hidden(self) -> bool:
        """True if students do not see its cases, so that feedback must not show their data."""
        return "### BEGIN HIDDEN TESTS\n" in self.source


def check_name(student: str) -> None:
    """Check that a name can be that of a folder, and does nothing in a page of Formgrader.

    Raises:
        ValueError: It cannot be, or would.
    """
    whole = student and student == Path(student).name and student.isprintable()
    if not whole or student.startswith(".") or set(student) & set('<>"&'):
        raise ValueError(f"{student!r} is not the name of a student")


def load(path: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the metadata and the cells of a notebook file.

    Raises:
        ValueError: The file is not a notebook of format 4, or is larger than 10 MiB.
        OSError: The file cannot be read, or is not a regular file.
    """
    content = read_limited(path, _MAX_BYTES)
    try:
        notebook = read_json(content)
        metadata, cells = notebook.get("metadata", {}), notebook["cells"]
        right = isinstance(metadata, dict) and isinstance(cells, list) and all(map(_is_cell, cells))
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise ValueError(f"{path} is not a notebook of format 4")
    return metadata, cells


def _is_cell(cell: Any) -> bool:
    """Return whether a cell has the fields that are read, with the types of nbformat 4."""
    source = cell["source"]
    lines = source if isinstance(source, list) else [source]
    metadata, kind = cell["metadata"], cell["cell_type"]
    return (
        isinstance(metadata, dict)
        and isinstance(kind, str)
        and all(isinstance(line, str) for line in lines)
    )


def ratios(metadata: Mapping[str, Any]) -> list[float]:
    """Return the ratios of bonuses that the grader wrote into a notebook's metadata."""
    written = metadata.get("dgkit")
    found = written.get("ratios") if isinstance(written, dict) else None
    values = found.values() if isinstance(found, dict) else ()
    return [ratio for ratio in map(_number, values) if ratio]


def _number(value: Any) -> float:
    """Return a number as a float; 0 for what neither the grader nor nbgrader writes."""
    right = isinstance(value, (int, float)) and 0 <= value <= _MAX_NUMBER
    return float(value) if right else 0.0


def source(cell: Mapping[str, Any]) -> str:
    """Return the source of a cell as one text."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _nbgrader_metadata(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = cell["metadata"].get("nbgrader", {})
    code = cell["cell_type"] == "code" and isinstance(metadata, Mapping)
    return metadata if code and metadata.get("grade_id") else {}


def solutions(cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return name and source of each solution cell; no other code of a submission is run.

    A cell that was split, or pasted twice, is joined in its order. The imports of cells that the
    student added come first.
    """
    pieces: dict[str, list[str]] = {}
    for cell in cells:
        if (
            (metadata := _nbgrader_metadata(cell))
            and metadata.get("solution")
            and not metadata.get("grade")
        ):
            pieces.setdefault(str(metadata["grade_id"]), []).append(source(cell))
    found = [(name, joined(each)) for name, each in pieces.items()]
    added = imports(cells)
    return [(IMPORTS, "\n".join(map(_optional, added))), *found] if added else found


def joined(pieces: Sequence[str]) -> str:
    """Return the source of a cell that was split or pasted twice, without unsolved copies."""
    solved = [piece for piece in pieces if _UNSOLVED not in piece] or pieces
    return "\n".join(dict.fromkeys(solved))


def imports(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the import statements at the top level of cells that nbgrader does not mark."""
    found: dict[str, None] = {}
    for cell in cells:
        if cell["cell_type"] != "code" or cell["metadata"].get("nbgrader"):
            continue
        lines = [line for line in source(cell).splitlines() if line.lstrip()[:1] not in ("%", "!")]
        try:
            tree = ast.parse("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found |= {
            ast.unparse(node): None
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
    return list(found)


def _optional(statement: str) -> str:
    """Return an import that may fail: what the solution needs then fails where it is used."""
    return f"try:\n    {statement}\nexcept ImportError:\n    pass"


def tests(cells: Sequence[Mapping[str, Any]]) -> list[Test]:
    """Return the test cells of a notebook."""
    return [
        Test(str(metadata["grade_id"]), source(cell), _number(metadata.get("points")))
        for cell in cells
        if (metadata := _nbgrader_metadata(cell))
        and metadata.get("grade")
        and not metadata.get("solution")
    ]
