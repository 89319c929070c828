# SPDX-License-Identifier: Apache-2.0
"""Lab 5: what each kind of submission scores."""

import re
from functools import partial

import pytest
from support import teaching
from support.teaching import score, skeleton, solution

LAB = "lab5"
RIGHT = solution(LAB)
changed = partial(teaching.changed, RIGHT)
FULL = {
    "test_append": 20.0,
    "test_kill": 30.0,
    "test_lease": 20.0,
    "test_takeover": 10.0,
    "test_takeover_hidden": 10.0,
    "test_few_accesses": 0.0,
}


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_accesses():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_accesses": 71 / 8}


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 0.0


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == dict.fromkeys(FULL, 0.0)


def test_a_client_that_only_repeats_gets_its_record_twice():
    cells = changed("append", "log.load(first_record + 4 * (count - 1)) == ident", "False")
    made = score(LAB, cells, "test_append", "test_kill", "test_few_accesses")
    assert made.points == {"test_append": 6.0, "test_kill": 9.0, "test_few_accesses": 0.0}
    capped = "at most 30% of this part, because this does not hold: each record is in the log once"
    assert capped in made.feedback["test_append"]
    assert made.ratios == {}, "a bonus for a wrong append"
    why = "no bonus: what it speeds up is wrong in test_append, test_kill"
    assert why in made.feedback["test_few_accesses"]
    told = made.feedback["test_kill"]
    assert "is in the log 2 times" in told
    lines = [line.strip() for line in told.splitlines()]
    assert any(line.endswith("kill -9") for line in lines)
    assert any(line.startswith("event  process 1") and "process 2" in line for line in lines)


def test_a_count_before_its_record_covers_half_a_record():
    early = """
def append(log, ident, values):
    count = log.load(0)
    if count and log.load(2 + 4 * (count - 1)) == ident:
        return True
    if count == log.capacity():
        return False
    log.store(0, count + 1)
    for word, value in enumerate([ident, *values], 2 + 4 * count):
        log.store(word, value)
    return True
"""
    made = score(LAB, RIGHT | {"append": early}, "test_append", "test_kill")
    assert made.points == {"test_append": 6.0, "test_kill": 0.0}
    assert "not all records before it are whole" in made.feedback["test_append"]


def test_a_successor_that_revokes_nothing_is_overwritten_by_the_holder_that_was_slow():
    made = score(
        LAB,
        changed("take_over", "log.revoke_others(epoch)", "pass"),
        "test_takeover",
        "test_takeover_hidden",
    )
    assert made.points == {"test_takeover": 0.0, "test_takeover_hidden": 0.0}
    told = made.feedback["test_takeover"]
    assert "is not in the log" in told
    assert told.index("pauses") < told.index("goes on")


@pytest.mark.more
def test_a_lease_that_is_stored_has_two_holders():
    cells = changed("take_lease", "if log.cas(lease_word, old, new) == old else None", "")
    cells["take_lease"] = cells["take_lease"].replace(
        "return epoch", "log.store(lease_word, new)\n    return epoch"
    )
    made = score(LAB, cells, "test_lease")
    assert made.total == 6.0
    told = made.feedback["test_lease"]
    assert "2 processes got the lease" in told
    assert re.search(r"store lease <- \d+/[12]/\d+\n", told), "epoch, holder, expiry"
    assert re.search(r"committed; lease \(epoch/holder/expiry\): \d+/[12]/\d+\n", told)


@pytest.mark.more
def test_an_append_that_raises_when_it_is_revoked_loses_the_takeover():
    made = score(LAB, changed("append", "except dgkit.AccessDenied", "except KeyError"))
    assert made.points == FULL | {"test_takeover": 0.0, "test_takeover_hidden": 0.0}
    assert (
        "AccessDenied: the owner of the log revoked this access" in made.feedback["test_takeover"]
    )


CHEATS = {
    "says that it is done": {
        "append": "return True",
        "take_lease": "return 1",
        "take_over": "return 6",
    },
    "reaches for the grader's memory": {
        "append": "given[0]._log.memory.array[0] += 1; return True",
        "take_over": "given[0]._log.revoke_others(given[0]); return 6",
    },
}


@pytest.mark.cheat
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_scores_nothing(cheat):
    cells = {name: f"def {name}(*given):\n    {body}\n" for name, body in CHEATS[cheat].items()}
    assert score(LAB, cells, time_s=2.0).total == 0.0


@pytest.mark.more
def test_what_is_remembered_beside_the_log_does_not_make_it_exactly_once():
    beside = """
from pathlib import Path

def append(log, ident, values):
    seen = Path(f"/tmp/dgkit-lab5-{ident}")
    if seen.exists():
        return True
    count = log.load(0)
    for word, value in enumerate([ident, *values], 2 + 4 * count):
        log.store(word, value)
    log.store(0, count + 1)
    seen.write_text("done")
    return True
"""
    made = score(LAB, RIGHT | {"append": beside}, "test_append", "test_kill")
    assert made.points["test_append"] <= 6.0
    assert made.points["test_kill"] <= 9.0
