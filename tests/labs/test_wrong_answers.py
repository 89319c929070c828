# SPDX-License-Identifier: Apache-2.0
"""Labs: a wrong answer costs what the lab's table of concepts says, under every seed of a course.

    python tests/labs/test_wrong_answers.py [--seeds 20] [--json FILE] [lab2 ...]

grades each wrong answer with each seed and prints its points beside those of the table. The answers
run in this process, not isolated: table.py grades as an instructor does.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import json_lines, teaching
from support.wrong_answers import WRONG, Wrong

from dgkit.report import Machine
from dgkit.teach import concepts, grader, student_notebook, verdict

LIMIT = 5.0  # points of 90 by which a grade may differ from the table of concepts
ALL = "all"  # what must be right for any points of a test cell is wrong
SLOW = ("put_pieces", "squares", "transform")  # are compiled


def _functions(lab: str, cells: Mapping[str, str], test: str) -> list[dict[str, Any]]:
    """Return what the cells define, and that with the functions of the test that replace theirs."""
    texts = teaching.solution(lab) | cells
    given = grader.given(texts.items(), test)
    made: list[dict[str, Any]] = [{}, {}] if given else [{}]
    for names, more in zip(made, ("", given), strict=False):
        for text in (*texts.values(), more):
            exec(text, names)
    return made


def grade(lab: str, cells: Mapping[str, str], seed: str, *only: str) -> dict[str, grader.Grade]:
    """Return the grades of a lab's tests, by functions of this process."""

    def run(_: Any, test: student_notebook.Test, **options: Any) -> grader.Grade:
        grades = []
        for names in _functions(lab, cells, test.source):
            with verdict.grading(seed) as found:
                exec(test.source, names)
            grades.append(grader.Grade(test, found.share, found.cases, ratio=found.ratio))
        return max(grades, key=lambda each: each.share)

    tests = [test for name, test in teaching.tests(lab).items() if not only or name in only]
    return grader.grade_lab([], tests, seed=seed, isolation=None, run=run)  # type: ignore[arg-type]


@functools.cache
def _weights(lab: str, test: str) -> dict[str, tuple[float, float]]:
    """Return weight and cap of the concepts that occur in a test."""
    table = {concept: name for name, concept in concepts.LABS[lab].items()}
    cases = grade(lab, {}, "solution", test)[test].cases
    assert not any(case.feedback for case in cases)
    return {table[case.concept]: (case.concept.weight, case.concept.cap) for case in cases}


def expected(wrong: Wrong) -> dict[str, float]:
    """Return the points of the tests that a wrong answer fails in, as the table says."""
    shares, caps = {}, {}
    for test, costs in wrong.costs.items():
        weights = _weights(wrong.lab, test)
        if ALL in costs:
            shares[test] = 0.0
            continue
        lost = sum(weights[concept][0] * share for concept, share in costs.items())
        shares[test] = 1 - lost / sum(weight for weight, _ in weights.values())
        caps[test] = min(weights[concept][1] for concept in costs)
    tests = teaching.tests(wrong.lab)
    made = {}
    for test, share in shares.items():
        part = grader.free_names(tests[test].source)
        same = [cap for each, cap in caps.items() if grader.free_names(tests[each].source) == part]
        made[test] = round(tests[test].points * min([share, *same]), 2)
    return made


def points(wrong: Wrong, seed: str) -> dict[str, float]:
    """Return the points of the tests that a wrong answer fails in."""
    made = grade(wrong.lab, wrong.cells, seed, *wrong.costs)
    return {name: each.points for name, each in made.items()}


FAST = [each for each in WRONG if not set(SLOW) & set(each.cells)]


@pytest.mark.parametrize("wrong", FAST, ids=lambda wrong: wrong.title)
def test_a_wrong_answer_costs_what_its_concepts_weigh(wrong):
    made, right = points(wrong, "a"), expected(wrong)
    assert abs(sum(made.values()) - sum(right.values())) <= LIMIT, (made, right)
    assert points(wrong, "b") == made, "by chance"


def main() -> int:
    """Grade with each seed, print, and return 1 if points differ from the table's or by seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("labs", nargs="*", metavar="lab")
    options = parser.parse_args()
    rows, status = [], 0
    for wrong in WRONG:
        if options.labs and wrong.lab not in options.labs:
            continue
        full = sum(teaching.tests(wrong.lab)[test].points for test in wrong.costs)
        right = 90 - full + sum(expected(wrong).values())
        found = Counter(
            round(90 - full + sum(points(wrong, f"seed {seed}").values()), 2)
            for seed in range(options.seeds)
        )
        far = max(abs(each - right) for each in found)
        status |= far > LIMIT
        scores = {f"{each:g}": count for each, count in sorted(found.items())}
        row = {"lab": wrong.lab, "wrong": wrong.title, "table": round(right, 2), "scores": scores}
        rows.append(row)
        print("FAR" if far > LIMIT else "   ", *row.values(), flush=True)
    if options.json:
        machine = asdict(Machine.here(cpus=os.cpu_count() or 1))
        command = " ".join(["python", *(Path(word).name for word in sys.argv)])
        made = {"machine": machine, "command": command, "limit": LIMIT, "rows": rows}
        json_lines.write(options.json, made)
    return status


if __name__ == "__main__":
    sys.exit(main())
