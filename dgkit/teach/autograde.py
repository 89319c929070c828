# SPDX-License-Identifier: Apache-2.0
"""dgkit's grader as preprocessors of nbgrader, instead of nbgrader's, which runs a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode, v4
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import compute_checksum
from traitlets import Bool, Float, Integer, Unicode

from . import collect, course, grader, hints, sandbox, student_notebook, variants
from .watchdog import Watchdog

_INSTRUCTORS = "### BEGIN "  # marks of nbgrader that no released notebook has


class Normalise(NbGraderPreprocessor):  # type: ignore[misc]
    """Make of a submission the cells that were released, and note what was done.

    nbgrader itself fails if a solution cell is missing, drops half of a cell that was split, and
    warns of each test cell that has hidden tests.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Merge, restore and reset cells; the notes are in the notebook's metadata.

        Raises:
            ValueError: The submission has a file that is a link, whose target nbgrader has copied,
                or the student's name is none.
        """
        where = resources["nbgrader"]
        student_notebook.check_name(student := str(where["student"]))
        folder = Path(str(self.config.Grader.get("course", ".")))
        lab = str(where["assignment"])
        collect.check_regular(_submitted(folder, where))
        if (graded := folder / "autograded" / student / lab).is_dir():
            collect.prepare(graded, folder / "source" / lab)
        with Gradebook(where["db_url"]) as gradebook:
            notebook = gradebook.find_notebook(where["notebook"], where["assignment"])
            points = {cell.name: cell.max_score for cell in notebook.grade_cells}
            solutions = {cell.name for cell in notebook.solution_cells}
            released = {cell.name: cell for cell in notebook.source_cells}
            marks = {
                name: {
                    "schema_version": 3,
                    "grade_id": name,
                    "grade": name in points,
                    "solution": name in solutions,
                    "task": False,
                    "locked": cell.locked,
                    "cell_type": cell.cell_type,
                    **({"points": points[name]} if name in points else {}),
                }
                for name, cell in released.items()
            }
            own = _own_constants(folder, where)
            others = self._others_constants(nb, folder, where)
            notes = [
                *others,
                *_unmark(nb.cells, released),
                *_disown(nb.cells, released),
                *_merge(nb.cells, released),
                *_restore(nb.cells, released, marks, own),
            ]
        if added := student_notebook.imports(nb.cells):
            notes.append(f"imports of your own cells count, too: {'; '.join(added)}")
        texts = _texts(folder, where, own)
        nb.cells = [_shown(cell, released, marks, texts) for cell in nb.cells]
        # Formgrader and the feedback put other metadata, such as a title, into their pages.
        nb.metadata = NotebookNode(
            kernelspec={"name": "python3", "display_name": "Python 3", "language": "python"},
            language_info={"name": "python"},
            dgkit={"notes": notes},
        )
        return nb, resources

    def _others_constants(self, nb: Any, folder: Path, where: Any) -> list[str]:
        """If a student who has a personal copy hands in another, warn; return the note, or none."""
        student, lab = str(where["student"]), str(where["assignment"])
        if not folder.joinpath(variants.FOLDER, student, lab).is_dir():
            return []
        seed = course.read_seed(folder)
        found = variants.owners(folder, lab, str(where["notebook"]), nb.cells, seed)
        if not found or student in found:
            return []
        whose = "the copy for all" if "" in found else "the copy of another student"
        note = (
            f"this notebook has the constants of {whose}, and is graded with those of your own "
            "copy, which its answers do not fit: ask your instructor for that, and hand it in"
        )
        self.log.warning(
            "%s handed in %s with the constants of %s: its answers do not fit those of %s/%s/%s",
            student, lab, "the release" if "" in found else " or ".join(sorted(found)),
            variants.FOLDER, student, lab,
        )  # fmt: skip
        return [note]


def _texts(folder: Path, where: Any, own: Callable[[str], str]) -> set[str]:
    """Return the Markdown of a lab's notebook, as released to all and to this student."""
    source = folder / "source" / where["assignment"] / f"{where['notebook']}.ipynb"
    if not source.is_file():
        return set()
    notebook = nbformat.read(source, as_version=4)
    texts = {cell.source for cell in notebook.cells if cell.cell_type == "markdown"}
    return texts | {own(text) for text in texts}


def _shown(
    cell: Any, released: dict[str, Any], marks: dict[str, dict[str, Any]], texts: set[str]
) -> Any:
    """Return a cell without active content, for the browsers of graders and students.

    Both pages render Markdown with the HTML in it and raw cells as they are, with the rights of
    whoever looks at them. So a text of the student becomes a block of code, in which HTML, links
    and formulas are text; attachments and metadata go.
    """
    name = _name(cell)
    kind = released[name].cell_type if name in released else cell.cell_type
    kept = {"nbgrader": marks[name]} if name in released else {}
    if kept and "checksum" in cell.metadata["nbgrader"]:
        kept["nbgrader"]["checksum"] = str(cell.metadata["nbgrader"]["checksum"])
    if kind == "code":
        return v4.new_code_cell(cell.source, metadata=kept)
    if cell.source not in texts and not (name in released and cell.source == released[name].source):
        fence = "`" * max([3, *(1 + len(run) for run in re.findall("`+", cell.source))])
        cell.source = f"{fence}\n{cell.source}\n{fence}"
    return v4.new_markdown_cell(cell.source, metadata=kept)


def _submitted(folder: Path, where: Any) -> Path:
    return folder.joinpath("submitted", where["student"], where["assignment"])


def _name(cell: Any) -> str:
    marks = cell.metadata.get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


def _unmark(cells: list[Any], released: dict[str, Any]) -> list[str]:
    """Make cells with a name that was not released, which nbgrader fails at, cells of the student.

    Returns:
        Notes.
    """
    notes = []
    for cell in cells:
        if (name := _name(cell)) and name not in released:
            del cell.metadata["nbgrader"]
            notes.append(f"the cell {name[:60]!r} is not of this lab: only its imports count")
    return notes


def _disown(cells: list[Any], released: dict[str, Any]) -> list[str]:
    """Empty the solutions of an instructor's notebook that was submitted; return notes."""
    known = [(released[name], cell) for cell in cells if (name := _name(cell)) in released]
    if not any(
        _INSTRUCTORS in cell.source
        for source, cell in known
        if source.locked or cell.cell_type == "markdown"
    ):
        return []
    for source, cell in known:
        cell.source = source.source if source.locked else ""
    return ["this is the instructor's notebook, with solutions: graded as empty"]


def _merge(cells: list[Any], released: dict[str, Any]) -> list[str]:
    """Merge cells with the same name into the first; return notes."""
    found: dict[str, list[Any]] = {}
    for cell in cells:
        if (name := _name(cell)) in released:
            found.setdefault(name, []).append(cell)
    notes = []
    for name, (first, *others) in found.items():
        if not others:
            continue
        for other in others:
            del other.metadata["nbgrader"]
        if not released[name].locked:
            first.source = student_notebook.joined(
                [first.source, *(each.source for each in others)]
            )
            cells[:] = [cell for cell in cells if not any(cell is other for other in others)]
        notes.append(f"the cell {name} was there {1 + len(others)} times: graded as one")
    return notes


def _own_constants(folder: Path, where: Any) -> Callable[[str], str]:
    """Return a function that puts a student's constants into a text of the lab."""
    seed = course.read_seed(folder)
    return variants.of_student(folder, str(where["assignment"]), seed, str(where["student"]))


def _restore(
    cells: list[Any],
    released: dict[str, Any],
    marks: dict[str, dict[str, Any]],
    own: Callable[[str], str],
) -> list[str]:
    """Add missing cells and reset the locked ones; return notes."""
    notes, place = [], 0
    for name, source in released.items():
        at = next((n for n, cell in enumerate(cells) if _name(cell) == name), None)
        if at is None:
            new = v4.new_markdown_cell if source.cell_type == "markdown" else v4.new_code_cell
            made = new(source.source, metadata={"nbgrader": marks[name]})
            made.metadata["nbgrader"]["checksum"] = source.checksum
            cells.insert(place, made)
            notes.append(f"the cell {name} was missing: it was added as released")
            place += 1
            continue
        cell = cells[at]
        cell.metadata["nbgrader"].update(marks[name])
        if source.locked:
            checksum = cell.metadata["nbgrader"].get("checksum")
            given = _visible(own(source.source))
            if cell.source.strip() != given and checksum != compute_checksum(cell):
                notes.append(f"the cell {name} was changed: graded as released")
            cell.source = source.source
        place = at + 1
    return notes


def _visible(source: str) -> str:
    """Return the source of a test cell without its hidden tests, as students get it."""
    hidden = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS\n?", re.DOTALL)
    return hidden.sub("", source).strip()


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
        if isolation.missing or not isolation.method:
            self.log.warning("%s of %s: %s", where["assignment"], where["student"], isolation)
        with Gradebook(where["db_url"]) as gradebook:
            self._grade(nb, where, gradebook, seed, isolation)
        return nb, resources

    def _grade(
        self, nb: Any, where: Any, gradebook: Any, seed: str, isolation: sandbox.Isolation
    ) -> None:
        limits = sandbox.Limits(time_s=self.time_s, memory_bytes=self.memory_bytes)
        cells = self._assignment_cells(student_notebook.solutions(nb.cells), where, gradebook)
        tests = {test.name: test for test in student_notebook.tests(nb.cells)}
        own = _own_constants(Path(self.course), where)
        trusted = [
            replace(test, source=own(test.source))
            for test in (self._trusted(test, where, gradebook) for test in tests.values())
        ]
        with Watchdog() as watchdog:
            grades = grader.grade_lab(
                cells, trusted, seed=seed, isolation=isolation, limits=limits, run=watchdog.grade
            )
        ratios, notes = {}, _notes(nb)
        notes += self._hints(where)
        told = list(notes)
        for cell in nb.cells:
            made = grades.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""))
            if not made or cell.cell_type != "code":
                continue
            cell.outputs = _outputs(made, told)
            told = []  # once, in the first
            if made.ratio is not None:
                ratios[made.test.name] = round(made.ratio, 3)
            names = (made.test.name, where["notebook"], where["assignment"], where["student"])
            gradebook.find_grade(*names).extra_credit = self._bonus(made.ratio)
        for cell in nb.cells:
            if cell.metadata.get("nbgrader", {}).get("locked"):
                cell.source = own(_visible(cell.source))  # in the feedback, as the student had it
        gradebook.db.commit()
        nb.metadata["dgkit"] = {"isolation": str(isolation), "ratios": ratios, "notes": notes}

    def _hints(self, where: Any) -> list[str]:
        """Return a note of the hints that the student took."""
        folder = _submitted(Path(self.course), where)
        taken = hints.shown(folder / f"{where['notebook']}.ipynb")
        shown = ", ".join(f"{name} ({level} of {hints.LEVELS})" for name, level in taken.items())
        return [f"hints taken, which cost no points: {shown}"] if taken else []

    def _bonus(self, ratio: float | None) -> float | None:
        """Return the extra credit for a ratio: half of max_bonus at 2, none at 1 or below."""
        return None if ratio is None else round(self.max_bonus * max(0.0, 1 - 1 / ratio), 2)

    @staticmethod
    def _assignment_cells(
        cells: list[tuple[str, str]], where: Any, gradebook: Any
    ) -> list[tuple[str, str]]:
        """Return the solution cells that belong to the assignment, and the imports."""
        notebook = gradebook.find_notebook(where["notebook"], where["assignment"])
        names = {student_notebook.IMPORTS, *(cell.name for cell in notebook.solution_cells)}
        return [(name, source) for name, source in cells if name in names]

    @staticmethod
    def _trusted(test: student_notebook.Test, where: Any, gradebook: Any) -> student_notebook.Test:
        """Return a test as the instructor released it."""
        names = (test.name, where["notebook"], where["assignment"])
        source = gradebook.find_source_cell(*names).source
        points = float(gradebook.find_graded_cell(*names).max_score)
        return student_notebook.Test(test.name, source, points)


def _notes(nb: Any) -> list[str]:
    """Return what Normalise noted."""
    return [str(note) for note in nb.metadata.get("dgkit", {}).get("notes", ())]


def _outputs(made: grader.Grade, notes: list[str]) -> list[Any]:
    """Return the outputs from which nbgrader takes the points and the feedback.

    A submission's error may have text that no file can: lone surrogates.
    """
    text = "\n".join([*notes, made.feedback, ""]).encode(errors="backslashreplace").decode()
    return [
        v4.new_output("stream", name="stdout", text=text),
        v4.new_output("execute_result", data={"text/plain": str(made.points)}),
    ]
