# SPDX-License-Identifier: Apache-2.0
"""Student notebooks: the solution, the skeleton, wrong answers, cheats."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from dgkit.teach import course, grader, sandbox, student_notebook, variants

SEED = "of a test"
CODE = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION$", re.DOTALL | re.MULTILINE)


def source(lab: str) -> Path:
    """Return the instructor's notebook of a lab."""
    (path,) = (course.labs_folder() / lab).glob("*.ipynb")
    return path


def solution(lab: str, student: str = "") -> dict[str, str]:
    """Return the solution cells by their names, with the constants of a student if one is named."""
    found = student_notebook.solutions(student_notebook.load(source(lab))[1])
    return {name: _own(text, lab, student) for name, text in found}


def _own(text: str, lab: str, student: str) -> str:
    return variants.replaced(text, lab, SEED, student) if student else text


def skeleton(lab: str) -> dict[str, str]:
    """Return the solution cells as they are released to students."""
    stub = r"\1raise NotImplementedError()"
    return {name: CODE.sub(stub, text) for name, text in solution(lab).items()}


def changed(cells: dict[str, str], name: str, old: str, new: str) -> dict[str, str]:
    """Return the cells with a text in a cell replaced; the cell must contain it."""
    assert old in cells[name]
    return cells | {name: cells[name].replace(old, new)}


def tests(lab: str) -> dict[str, student_notebook.Test]:
    """Return the test cells by their names."""
    found = student_notebook.tests(student_notebook.load(source(lab))[1])
    return {test.name: test for test in found}


def write(path: Path, notebook: Path, cells: dict[str, str]) -> None:
    """Write the lab's notebook with the given solution cells."""
    made = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in made["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in cells:
            cell["source"] = cells[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made), encoding="utf-8")


@dataclass(frozen=True)
class Scores:
    """Points of each test of a submission, and the feedback."""

    points: dict[str, float]
    feedback: dict[str, str]
    ratios: dict[str, float]
    isolation: sandbox.Isolation

    @property
    def total(self) -> float:
        return round(sum(self.points.values()), 2)


def score(
    lab: str, cells: dict[str, str], *only: str, student: str = "", **limits: float
) -> Scores:
    """Grade solution cells as nbgrader does, with a seed different from the examples'.

    If a student is named, the tests have the constants of that student.
    """
    isolation = sandbox.isolation((str(course.labs_folder()),))
    options = sandbox.Limits(**limits)
    chosen = [
        replace(test, source=_own(test.source, lab, student))
        for name, test in tests(lab).items()
        if not only or name in only
    ]
    grades = grader.grade_lab(
        list(cells.items()), chosen, seed=SEED, isolation=isolation, limits=options
    )
    wrong = [made.failure for made in grades.values() if "the test ended" in made.failure]
    assert not wrong, "a test must understand whatever it gets"
    return Scores(
        {name: made.points for name, made in grades.items()},
        {name: made.feedback for name, made in grades.items()},
        {name: made.ratio for name, made in grades.items() if made.ratio is not None},
        isolation,
    )
