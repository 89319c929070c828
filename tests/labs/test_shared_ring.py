# SPDX-License-Identifier: Apache-2.0
"""Lab 2: what each kind of submission scores."""

from functools import partial

import pytest
from support import teaching
from support.teaching import score, skeleton, solution

LAB = "lab2"
RIGHT = solution(LAB)
changed = partial(teaching.changed, RIGHT)
FULL = {
    "test_one_side": 20.0,
    "test_schedules": 30.0,
    "test_batch": 15.0,
    "test_doorbell": 25.0,
    "test_few_accesses": 0.0,
}
NOTHING = dict.fromkeys(FULL, 0.0)


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_accesses():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_accesses": pytest.approx(4 * 64 / 67)}


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 0.0


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == NOTHING


def test_a_tail_that_is_published_before_its_slot_is_found_with_the_schedule():
    early = """
def submit(ring, value):
    tail = ring.load(0)
    if (tail - ring.load(1)) % 2**32 == ring.slots():
        return False
    ring.store(0, (tail + 1) % 2**32)
    ring.store(3 + tail % ring.slots(), value)
    if ring.load(2):
        ring.doorbell()
    return True
"""
    made = score(LAB, RIGHT | {"submit": early})
    assert made.points == FULL | {"test_one_side": 6.0, "test_schedules": 0.0, "test_doorbell": 0.0}
    told = made.feedback["test_schedules"]
    assert "was submitted" in told
    lines = [line.split() for line in told.splitlines()]
    head = next(n for n, words in enumerate(lines) if words[:1] == ["step"])
    assert lines[head] == ["step", "producer", "consumer"]
    assert len(lines) > head + 4, "the steps that lead to it"


def test_a_consumer_that_looks_before_it_arms_loses_a_wake_up():
    late = """
def prepare_to_sleep(ring):
    if ring.load(0) != ring.load(1):
        return False
    ring.store(2, 1)
    return True
"""
    made = score(LAB, RIGHT | {"prepare_to_sleep": late})
    assert made.points == FULL | {"test_doorbell": 0.0}
    assert "a lost wake-up" in made.feedback["test_doorbell"]


def test_indices_that_do_not_wrap_cost_the_cases_that_wrap():
    made = score(LAB, changed("submit", "(tail + 1) % 2**32", "tail + 1"))
    assert made.points == FULL | {"test_one_side": 13.33, "test_schedules": 22.5}
    assert "a word has 32 bits" in made.feedback["test_one_side"]


@pytest.mark.more
def test_a_doorbell_for_each_value_costs_its_concept():
    made = score(LAB, changed("submit", "if ring.load(armed_word):", "if True:"), "test_doorbell")
    assert made.total == 17.5
    assert "doorbells; the consumer was armed" in made.feedback["test_doorbell"]


@pytest.mark.cheat
def test_values_that_do_not_go_through_the_ring_score_nothing():
    beside = """
values = []
def submit(ring, value):
    if len(values) == ring.slots():
        return False
    values.append(value)
    return True
"""
    taken = "def take(ring):\n    return values.pop(0) if values else None\n"
    cells = RIGHT | {"submit": beside, "take": taken}
    assert score(LAB, cells, "test_one_side", "test_schedules", time_s=2.0).total == 0.0


@pytest.mark.cheat
@pytest.mark.more
def test_a_side_that_never_ends_scores_nothing():
    cells = RIGHT | {"take": "def take(ring):\n    while True:\n        ring.load(0)\n"}
    made = score(LAB, cells, "test_schedules")
    assert made.total == 0.0
    assert "no end after 3000 steps" in made.feedback["test_schedules"]
