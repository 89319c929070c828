"""Labs: a wrong answer gets the same points under every seed of a course.

    python tests/labs/test_wrong_answers.py [--seeds 100] [lab2 ...]

prints for each one under how many seeds it gets its points of the tests that are to find it. The
answers run in this process, not isolated: table.py grades as an instructor does.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import teaching

from dgkit.teach import grader, student_notebook, verdict


class Wrong(NamedTuple):
    """A wrong answer.

    Attributes:
        lab: The lab.
        points: The points of each test that does not give all.
        cells: The cells that differ from the solution's.
    """

    lab: str
    points: Mapping[str, float]
    cells: Mapping[str, str]


def _edit(lab: str, name: str, *replacements: tuple[str, str]) -> dict[str, str]:
    """Return a cell of the solution, named by itself, with texts replaced."""
    cells = teaching.solution(lab)
    for old, new in replacements:
        cells = teaching.changed(cells, name, old, new)
    return {name: cells[name]}


_ring = partial(_edit, "lab2")
_PUBLISH = "    ring.store(tail_word, (tail + 1) % 2**32)\n"
_FILL = "    ring.store(first_slot + tail % ring.slots(), value)\n"
_HEAD = "    ring.store(head_word, (head + 1) % 2**32)\n"
_VALUE = "    value = ring.load(first_slot + head % ring.slots())\n"
_order = partial(_edit, "lab3")
_SEND = "    out.write_fenced(flag_word, 1)\n"
_POLL = "    if box.load(flag_word) != 1:\n        return None\n    box.fence()\n"
_LOADS = "    for turn in range(300):\n        box.load(first_word + turn % count)\n"
_FIRST = "        return None\n    box.fence()\n    values"
_AGAIN = "    box.fence()\n    return values"
_STORES = (
    "    for turn in range(200):\n        out.write(first_word + turn % 4, values[turn % 4])\n"
)
_ODD = "out.write_fenced(flag_word, 2 * number - 1)"
_WHOLE = "    out.write_fenced(flag_word, 2 * number)\n"
WRONG = {
    "a consumer that looks before it arms": Wrong(
        "lab2",
        {"test_doorbell": 0.0},
        _ring(
            "prepare_to_sleep",
            ("    ring.store(armed_word, 1)\n", ""),
            ("        ring.store(armed_word, 0)\n", ""),
            ("    return True\n", "    ring.store(armed_word, 1)\n    return True\n"),
        ),
    ),
    "armed is read before the value is published": Wrong(
        "lab2",
        {"test_doorbell": 0.0},
        _ring(
            "submit",
            (_FILL, f"{_FILL}    armed = ring.load(armed_word)\n"),
            ("if ring.load(armed_word):", "if armed:"),
        ),
    ),
    "a consumer that never sleeps": Wrong(
        "lab2",
        {"test_doorbell": 0.0},
        {"prepare_to_sleep": "def prepare_to_sleep(ring):\n    return False\n"},
    ),
    "armed is not cleared": Wrong(
        "lab2",
        {"test_doorbell": 17.5},
        _ring("prepare_to_sleep", ("        ring.store(armed_word, 0)\n", "")),
    ),
    "a doorbell for each value": Wrong(
        "lab2",
        {"test_doorbell": 17.5},
        _ring("submit", ("if ring.load(armed_word):", "if True:")),
    ),
    "the tail is published before its slot": Wrong(
        "lab2",
        {"test_schedules": 0.0, "test_doorbell": 0.0},
        _ring("submit", (_FILL, ""), (_PUBLISH, _PUBLISH + _FILL)),
    ),
    "the slot is freed before it is read": Wrong(
        "lab2",
        {"test_schedules": 0.0},
        _ring("take", (_HEAD, ""), (_VALUE, _HEAD + _VALUE)),
    ),
    "a producer that stores 200 times instead of fencing": Wrong(
        "lab3",
        {"test_send": 4.5},
        _order("send", (_SEND, f"{_STORES}    out.write(flag_word, 1)\n")),
    ),
    "a mailbox's producer that stores 200 times instead of fencing": Wrong(
        "lab3",
        {"test_publish": 4.5},
        _order("publish", (_WHOLE, f"{_STORES}    out.write(flag_word, 2 * number)\n")),
    ),
    "an odd number that may overtake the message before": Wrong(
        "lab3",
        {"test_publish": 4.5},
        _order("publish", (_ODD, _ODD.replace("_fenced", ""))),
    ),
    "a payload that may overtake its odd number": Wrong(
        "lab3",
        {"test_publish": 4.5},
        _order("publish", ("out.write_fenced(first_word", "out.write(first_word")),
    ),
    "a payload that is cleared first": Wrong(
        "lab3",
        {"test_send": 4.5},
        _order("send", ("        out.write(", "        out.write(word, 1)\n        out.write(")),
    ),
    "a consumer that loads 300 times instead of fencing": Wrong(
        "lab3",
        {"test_poll": 4.5},
        _order("poll", ("    box.fence()\n", _LOADS)),
    ),
    "a consumer that loads the payload before the flag": Wrong(
        "lab3",
        {"test_poll": 4.5},
        _order(
            "poll",
            (_POLL, ""),
            ("    return [", "    values = ["),
            ("count)]\n", f"count)]\n{_POLL}    return values\n"),
        ),
    ),
    "no fence before the payload": Wrong(
        "lab3",
        {"test_snapshot": 6.0},
        _order("snapshot", (_FIRST, _FIRST.replace("    box.fence()\n", _LOADS))),
    ),
    "no fence after the payload": Wrong(
        "lab3",
        {"test_snapshot": 6.0},
        _order("snapshot", (_AGAIN, _LOADS + "    return values")),
    ),
    "a sequence number that is loaded once": Wrong(
        "lab3",
        {"test_snapshot": 6.0},
        _order("snapshot", ("values if box.load(flag_word) == before else None", "values")),
    ),
    "a sequence number that only has to be even again": Wrong(
        "lab3",
        {"test_snapshot": 6.0},
        _order("snapshot", ("box.load(flag_word) == before", "box.load(flag_word) % 2 == 0")),
    ),
    "odd sequence numbers are read": Wrong(
        "lab3",
        {"test_snapshot": 6.0},
        _order("snapshot", ("before == 0 or before % 2", "before == 0")),
    ),
}


def grade(lab: str, cells: Mapping[str, str], seed: str, *only: str) -> dict[str, float]:
    """Return the points of a lab's tests, by functions of this process."""
    names: dict[str, Any] = {}
    for text in (teaching.solution(lab) | cells).values():
        exec(text, names)

    def run(cells: Any, test: student_notebook.Test, **_: Any) -> grader.Grade:
        with verdict.grading(seed) as found:
            exec(test.source, dict(names))
        return grader.Grade(test, found.share, found.cases, ratio=found.ratio)

    tests = [test for name, test in teaching.tests(lab).items() if not only or name in only]
    grades = grader.grade_lab([], tests, seed=seed, isolation=None, run=run)  # type: ignore[arg-type]
    return {name: made.points for name, made in grades.items()}


def expected(wrong: Wrong) -> dict[str, float]:
    """Return the points of all tests that a wrong answer is to get."""
    full = {name: test.points for name, test in teaching.tests(wrong.lab).items()}
    return full | wrong.points


@pytest.mark.parametrize("seed", ["a", "b"])
@pytest.mark.parametrize("title", WRONG)
def test_a_wrong_answer_costs_the_same_under_each_seed(title, seed):
    wrong = WRONG[title]
    assert grade(wrong.lab, wrong.cells, seed, *wrong.points) == wrong.points


def main() -> int:
    """Grade with each seed, print, and return 1 if points differ from the expected ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("labs", nargs="*", metavar="lab")
    options = parser.parse_args()
    status = 0
    for title, wrong in WRONG.items():
        if options.labs and wrong.lab not in options.labs:
            continue
        right, others = expected(wrong), Counter[str]()
        for seed in range(options.seeds):
            made = grade(wrong.lab, wrong.cells, f"seed {seed}", *wrong.points)
            others[str({name: each for name, each in made.items() if each != right[name]})] += 1
        same = others.pop("{}", 0)
        status |= same < options.seeds
        told = "".join(f"; {count} times {points}" for points, count in others.items())
        total = sum(right.values())
        print(f"{wrong.lab}  {total:g}  {same} of {options.seeds}  {title}{told}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
