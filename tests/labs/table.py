# SPDX-License-Identifier: Apache-2.0
"""Print what each submission of the labs' tests scores, as graded by dgkit.teach.grader.

    python tests/labs/table.py [lab1 ...] [--json FILE]

It runs the tests of this folder, those of `tests/run labs --all` included, and notes each
submission that they grade: the solution, the skeleton, wrong answers, cheats. A test may be about
one part of a lab; here the whole submission is graded, and both are in the table.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from support import json_lines, teaching  # noqa: E402

import dgkit  # noqa: E402
from dgkit.report import Machine  # noqa: E402

KINDS = ("solution", "skeleton", "neighbour", "wrong answer", "cheat")


@dataclass(frozen=True)
class Row:
    """What a submission scored.

    Attributes:
        lab: The lab.
        kind: One of KINDS.
        submission: The test that grades it, in words.
        points: Points of all automatic tests, of at most 90.
        part: Points of the tests that it is about.
        of: The most that these give.
        bonus: Ratios of the bonus.
        isolation: How it was isolated.
    """

    lab: str
    kind: str
    submission: str
    points: float
    part: float
    of: float
    bonus: dict[str, float]
    isolation: str


class Recorder:
    """Plugin of pytest: grades the whole of each submission, and notes its row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._item: Any = None
        self._score = teaching.score

    def pytest_runtest_call(self, item: Any) -> None:
        """Remember the test that runs."""
        self._item = item

    def score(
        self, lab: str, cells: dict[str, str], *only: str, student: str = "", **limits: float
    ) -> teaching.Scores:
        """Grade in the place of support.teaching.score."""
        whole = self._score(lab, cells, student=student, **limits)
        tests = teaching.tests(lab)
        parts = {name: points for name, points in whole.points.items() if not only or name in only}
        made = Row(
            lab,
            _kind(self._item),
            _title(self._item),
            whole.total,
            round(sum(parts.values()), 2),
            sum(tests[name].points for name in parts),
            {name: round(ratio, 3) for name, ratio in whole.ratios.items()},
            str(whole.isolation),
        )
        self.rows.append(made)
        ratios = {name: ratio for name, ratio in whole.ratios.items() if name in parts}
        return replace(whole, points=parts, ratios=ratios)


def _kind(item: Any) -> str:
    if item.get_closest_marker("cheat"):
        return "cheat"
    named = [kind for kind in KINDS[:3] if item.originalname.startswith(f"test_the_{kind}")]
    return named[0] if named else "wrong answer"


def _title(item: Any) -> str:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if "cheat" in given:
        return str(given["cheat"])
    name = item.originalname.removeprefix("test_").replace("_", " ")
    return ": ".join([name, *list(given.values())[-1:]])


def grade(labs: Sequence[str]) -> tuple[list[Row], int]:
    """Return the rows of the labs, and pytest's exit status."""
    os.environ["DGKIT_TESTS_ALL"] = "1"
    recorder = Recorder()
    teaching.score = recorder.score
    files = [path for path in sorted(FOLDER.glob("test_*.py")) if _grades(path, labs)]
    status = pytest.main(["-q", *map(str, files)], plugins=[recorder])
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(recorder.rows, key=lambda row: (row.lab, order[row.kind])), int(status)


def _grades(path: Path, labs: Sequence[str]) -> bool:
    text = path.read_text(encoding="utf-8")
    named = any(f'LAB = "{lab}"' in text for lab in labs) if labs else 'LAB = "' in text
    return named and "import score" in text


def summary(rows: Iterable[Row]) -> list[str]:
    """Return a table with one line for each lab."""
    rows = list(rows)
    lines = [
        "| lab | solution | skeleton | neighbour | wrong answers | cheats: how many, most points |",
        "|---|---|---|---|---|---|",
    ]
    for lab in sorted({row.lab for row in rows}):
        found = {
            kind: [row for row in rows if (row.lab, row.kind) == (lab, kind)] for kind in KINDS
        }
        scores = [
            ", ".join(f"{points:g}" for points in sorted(row.points for row in found[kind]))
            for kind in KINDS[:4]
        ]
        cheats = found["cheat"]
        most = f"{max(row.part for row in cheats):g}" if cheats else "-"
        lines.append(f"| {lab} | {' | '.join(scores)} | {len(cheats)}, {most} |")
    return lines


def details(rows: Iterable[Row]) -> list[str]:
    """Return a table with one line for each submission."""
    lines = ["| lab | kind | submission | points of 90 | of its part |", "|---|---|---|---|---|"]
    for row in rows:
        title = row.submission.replace("|", "\\|")
        part = f"{row.part:g} of {row.of:g}"
        lines.append(f"| {row.lab} | {row.kind} | {title} | {row.points:g} | {part} |")
    return lines


def main() -> int:
    """Grade, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labs", nargs="*", metavar="lab", help="lab1, ... (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows, status = grade(options.labs)
    print("\n".join([*summary(rows), "", *details(rows)]))
    if options.json:
        made = {
            "machine": asdict(Machine.here(cpus=os.cpu_count() or 1)),
            "python": sys.version,
            "dgkit": dgkit.__version__,
            "command": " ".join(["python", *(Path(word).name for word in sys.argv)]),
            "pytest's exit status": status,
            "rows": [asdict(row) for row in rows],
        }
        json_lines.write(options.json, made)
    return status


if __name__ == "__main__":
    sys.exit(main())
