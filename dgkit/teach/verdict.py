# SPDX-License-Identifier: Apache-2.0
"""Cases of a lab's tests: whether each answer is right, the feedback, the share of the points."""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from .concepts import Concept, Table
from .submission import SubmissionFailed

EXAMPLE_SEED = "example"


class WrongAnswer(AssertionError):
    """Raised for a wrong answer; its text is the feedback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the feedback, without a traceback of the test."""
        return str(self).strip().splitlines()


@dataclass(slots=True)
class Case:
    """One case of a test.

    Attributes:
        title: What was tested.
        concept: What it is about.
        feedback: Why the answer is wrong; empty if it is right.
        required: Whether the whole test gives no points if this case is wrong.
    """

    title: str
    concept: Concept
    feedback: str = ""
    required: bool = False

    def heading(self) -> str:
        """Return a line without the feedback."""
        return f"{'WRONG' if self.feedback else 'right'}  {self.title}"

    def __str__(self) -> str:
        return "\n".join(
            [self.heading(), *(f"       {line}" for line in self.feedback.splitlines())]
        )


@dataclass(slots=True)
class Grading:
    """Cases and bonus of the tests that a grader runs.

    Attributes:
        seed: The course's seed, from which the data of all tests are generated.
        cases: The cases so far.
        ratio: Ratio of the bonus, above 1 if better than the reference; None without a bonus.
    """

    seed: str
    cases: list[Case] = field(default_factory=list)
    ratio: float | None = None

    @property
    def share(self) -> float:
        """The share of the points, 0 to 1: of each concept by its weight, then by its cases."""
        if not self.cases or any(case.feedback for case in self.cases if case.required):
            return 0.0
        found: dict[Concept, list[bool]] = {}
        for case in self.cases:
            found.setdefault(case.concept, []).append(not case.feedback)
        weights = sum(concept.weight for concept in found)
        right = (concept.weight * sum(each) / len(each) for concept, each in found.items())
        return sum(right) / weights


_current: contextvars.ContextVar[Grading | None] = contextvars.ContextVar("grading", default=None)


@contextlib.contextmanager
def grading(seed: str) -> Iterator[Grading]:
    """Collect the results of the tests in the block, which then do not raise WrongAnswer."""
    grading = Grading(seed)
    token = _current.set(grading)
    try:
        yield grading
    finally:
        _current.reset(token)


def seeded(part: str) -> random.Random:
    """Return random numbers for a part of a lab, seeded by the course if graded, else fixed."""
    current = _current.get()
    return random.Random(f"{current.seed if current else EXAMPLE_SEED}/{part}")


class Report:
    """Cases of one test. Outside of a grader, finish() raises WrongAnswer if a case is wrong.

    Args:
        concepts: The lab's concepts.
    """

    def __init__(self, concepts: Table) -> None:
        self._concepts = concepts
        self._cases: list[Case] = []

    @contextlib.contextmanager
    def case(self, title: str, concept: str, *, required: bool = False) -> Iterator[None]:
        """Add a case, which is wrong if the block raises WrongAnswer or SubmissionFailed."""
        case = Case(title, self._concepts[concept], required=required)
        try:
            yield
        except (WrongAnswer, SubmissionFailed) as exc:
            case.feedback = str(exc) or type(exc).__name__
        self._cases.append(case)

    def bonus(self, ratio: float) -> None:
        """Report the ratio of the bonus if all cases are right."""
        current = _current.get()
        if current and not any(case.feedback for case in self._cases):
            current.ratio = ratio

    def finish(self) -> None:
        """Pass the cases to the grader or, without a grader, raise WrongAnswer for wrong ones."""
        if current := _current.get():
            current.cases += self._cases
            return
        if any(case.feedback for case in self._cases):
            raise WrongAnswer("\n" + "\n".join(map(str, self._cases)))


def expect(right: bool, feedback: str) -> None:
    """Raise WrongAnswer with the feedback unless the answer is right."""
    if not right:
        raise WrongAnswer(feedback)
