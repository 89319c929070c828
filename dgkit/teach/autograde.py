"""dgkit's grader as a preprocessor of nbgrader, instead of nbgrader's, which runs a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Float, Integer, Unicode

from . import course, grader, sandbox, student_notebook


class Grader(NbGraderPreprocessor):  # type: ignore[misc]
    """Grade each test cell by `dgkit.teach.grader` and write its points and feedback as outputs."""

    course = Unicode(".", help="Folder of the course").tag(config=True)
    time_s = Float(10.0, help="Time of one call, in seconds").tag(config=True)
    memory_bytes = Integer(2 << 30, help="Memory of a submission").tag(config=True)
    allow_not_isolated = Bool(
        False, help="Grade even if submissions cannot be isolated: they then run with your rights"
    ).tag(config=True)
    max_bonus = Float(5.0, help="Largest number of bonus points").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Grade a notebook whose test cells nbgrader has restored.

        Raises:
            RuntimeError: Submissions cannot be isolated, and allow_not_isolated is false.
        """
        where = resources["nbgrader"]
        folder = Path(self.course)
        isolation = sandbox.isolation(course.hidden_folders(folder))
        if not isolation.method and not self.allow_not_isolated:
            raise RuntimeError(
                f"submissions cannot be isolated ({isolation.note}): grade as root or install "
                "bubblewrap, or set c.Grader.allow_not_isolated and trust them"
            )
        seed = course.read_seed(folder)
        with Gradebook(where["db_url"]) as gradebook:
            self._grade(nb, where, gradebook, seed, isolation)
        return nb, resources

    def _grade(
        self, nb: Any, where: Any, gradebook: Any, seed: str, isolation: sandbox.Isolation
    ) -> None:
        limits = sandbox.Limits(time_s=self.time_s, memory_bytes=self.memory_bytes)
        cells = self._known(student_notebook.solutions(nb.cells), where, gradebook)
        tests = {test.name: test for test in student_notebook.tests(nb.cells)}
        ratios = {}
        for cell in nb.cells:
            test = tests.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""))
            if not test or cell.cell_type != "code":
                continue
            test = self._trusted(test, where, gradebook)
            made = grader.grade(cells, test, seed=seed, isolation=isolation, limits=limits)
            cell.outputs = _outputs(made)
            if made.ratio is not None:
                ratios[test.name] = round(made.ratio, 3)
            names = (test.name, where["notebook"], where["assignment"], where["student"])
            gradebook.find_grade(*names).extra_credit = self._bonus(made.ratio)
        gradebook.db.commit()
        nb.metadata["dgkit"] = {"isolation": str(isolation), "ratios": ratios}

    def _bonus(self, ratio: float | None) -> float | None:
        """Return the extra credit for a ratio: half of max_bonus at 2, none at 1 or below."""
        return None if ratio is None else round(self.max_bonus * max(0.0, 1 - 1 / ratio), 2)

    @staticmethod
    def _known(cells: list[tuple[str, str]], where: Any, gradebook: Any) -> list[tuple[str, str]]:
        """Return the solution cells that belong to the assignment, without duplicates."""
        notebook = gradebook.find_notebook(where["notebook"], where["assignment"])
        names = {cell.name for cell in notebook.solution_cells}
        found = {name: source for name, source in reversed(cells) if name in names}
        return list(reversed(found.items()))

    @staticmethod
    def _trusted(test: student_notebook.Test, where: Any, gradebook: Any) -> student_notebook.Test:
        """Return a test as the instructor released it."""
        names = (test.name, where["notebook"], where["assignment"])
        source = gradebook.find_source_cell(*names).source
        points = float(gradebook.find_graded_cell(*names).max_score)
        return student_notebook.Test(test.name, source, points)


def _outputs(made: grader.Grade) -> list[Any]:
    """Return the outputs from which nbgrader takes the points and the feedback."""
    from nbformat.v4 import new_output

    return [
        new_output("stream", name="stdout", text=made.feedback + "\n"),
        new_output("execute_result", data={"text/plain": str(made.points)}),
    ]
