# SPDX-License-Identifier: Apache-2.0
"""Grading of a lab: each test runs here and calls a new process with the student's cells."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import Unsupported
from . import concepts, sandbox, verdict
from .student_notebook import Test
from .submission import Submission, SubmissionFailed


@dataclass(frozen=True, slots=True)
class Grade:
    """The result of one test cell.

    Attributes:
        test: The test.
        share: Fraction of the points of the test, from 0 to 1.
        cases: The cases that were tested.
        failure: Reason why nothing was tested; empty otherwise.
        ratio: Ratio of the bonus, if the test is for a bonus.
        notes: What else decided about the points.
    """

    test: Test
    share: float
    cases: Sequence[verdict.Case] = field(default=())
    failure: str = ""
    ratio: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """True if all of its cases are right."""
        return bool(self.cases) and not any(case.feedback for case in self.cases)

    @property
    def first_wrong(self) -> concepts.Concept | None:
        """The concept of the first wrong case."""
        return next((case.concept for case in self.cases if case.feedback), None)

    @property
    def shown(self) -> list[str]:
        """Lines that say what a right test showed, one for each concept."""
        return list(dict.fromkeys(case.concept.shows for case in self.cases))

    @property
    def bonus(self) -> list[str]:
        """A line about the bonus, if there is one."""
        return [] if self.ratio is None else [f"bonus: a ratio of {self.ratio:.2f}"]

    @property
    def points(self) -> float:
        """The points, rounded to hundredths."""
        return round(self.share * self.test.points, 2)

    @property
    def feedback(self) -> str:
        """Lines for the student."""
        lines = [f"{self.points:g} of {self.test.points:g} points"]
        if self.failure:
            lines.append(f"WRONG  {self.failure}")
        lines += map(verdict.Case.heading if self.test.hidden else str, self.cases)
        return "\n".join([*lines, *self.notes, *self.bonus])


def grade_lab(
    cells: Sequence[tuple[str, str]],
    tests: Iterable[Test],
    *,
    seed: str,
    isolation: sandbox.Isolation,
    limits: sandbox.Limits | None = None,
    run: Callable[..., Grade] | None = None,
) -> dict[str, Grade]:
    """Run all tests of a lab against solution cells; return the grades by the tests' names.

    Tests that call the same functions are one part, to all of which the lowest cap of its wrong
    cases applies. A bonus counts only if all tests that call one of its functions are right. `run`
    is called in the place of grade().

    Raises:
        Unsupported: This machine lacks what a test needs.
    """
    run = run or grade
    grades = [run(cells, test, seed=seed, isolation=isolation, limits=limits) for test in tests]
    calls = [free_names(each.test.source) for each in grades]
    by_name = {}
    for number, each in enumerate(grades):
        part = [other for names, other in zip(calls, grades, strict=True) if names == calls[number]]
        each = _capped(each, part)
        if each.ratio is not None:
            wrong = [
                other.test.name
                for names, other in zip(calls, grades, strict=True)
                if names & calls[number] and other.share < 1
            ]
            each = _without_bonus(each, wrong) if wrong else each
        by_name[each.test.name] = each
    return by_name


def _capped(each: Grade, part: Iterable[Grade]) -> Grade:
    """Return a grade of at most the lowest cap of the wrong cases of its part."""
    wrong = [case.concept for other in part for case in other.cases if case.feedback]
    lowest = min(wrong, key=lambda concept: concept.cap, default=None)
    if lowest is None or each.share <= lowest.cap:
        return each
    note = f"at most {lowest.cap:.0%} of this part, because this does not hold: {lowest.shows}"
    return replace(each, share=lowest.cap, notes=(*each.notes, note))


def _without_bonus(each: Grade, wrong: Sequence[str]) -> Grade:
    """Return a grade without its bonus, and with the reason."""
    note = f"no bonus: what it speeds up is wrong in {', '.join(wrong)}"
    return replace(each, ratio=None, notes=(*each.notes, note))


def grade(
    cells: Sequence[tuple[str, str]],
    test: Test,
    *,
    seed: str,
    isolation: sandbox.Isolation,
    limits: sandbox.Limits | None = None,
) -> Grade:
    """Run a test against solution cells.

    The test's code runs in this process. A name that it neither defines nor imports stands for a
    function of the submission, which runs in another process and is called from here. If the
    answer is wrong, and the test defines a function that the submission has, too, it is graded
    again with that in the place of the student's; the better of both counts.

    Args:
        cells: Name and source of each solution cell.
        test: The test, whose code is trusted.
        seed: Seed of the data.
        isolation: Isolation of the submission.
        limits: Limits of the submission.

    Raises:
        Unsupported: This machine lacks what the test needs.
    """
    limits = limits or sandbox.Limits()
    grading = _run(cells, test, seed, isolation, limits)
    if grading.right or not (replaced := given(cells, test.source)):
        return grading
    again = _run([*cells, ("given", replaced)], test, seed, isolation, limits)
    return max(grading, again, key=lambda each: each.share)


def given(cells: Iterable[tuple[str, str]], source: str) -> str:
    """Return the functions of a test that replace those in cells of the same name."""
    names = {name for name, _ in cells}
    body = ast.parse(source).body
    found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name in names]
    return "\n\n".join(map(ast.unparse, found))


def _run(
    cells: Sequence[tuple[str, str]],
    test: Test,
    seed: str,
    isolation: sandbox.Isolation,
    limits: sandbox.Limits,
) -> Grade:
    try:
        with Submission.of_cells(cells, limits=limits, isolation=isolation) as submission:
            names = {name: submission.function(name) for name in free_names(test.source)}
            with verdict.grading(seed) as found:
                exec(compile(test.source, f"test:{test.name}", "exec"), {**names})
    except Unsupported:  # this machine cannot run the test, which is not the submission's fault
        raise
    except SubmissionFailed as exc:
        return Grade(test, 0.0, failure=str(exc))
    except Exception as exc:  # the test did not anticipate this answer
        return Grade(test, 0.0, failure=f"the test ended: {type(exc).__name__}: {exc}")
    return Grade(test, found.share, found.cases, ratio=found.ratio)


def free_names(source: str) -> set[str]:
    """Return the names that code reads but does not bind, except builtins."""
    read, bound = set[str](), set(dir(builtins))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) and node.name:
            bound.add(node.name)
    return read - bound
