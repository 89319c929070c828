# SPDX-License-Identifier: Apache-2.0
"""Lab 3: what each kind of submission scores."""

import re
from functools import partial

import pytest
from support import teaching
from support.teaching import score, skeleton, solution

from dgkit.teach import memory_order

LAB = "lab3"
RIGHT = solution(LAB)
changed = partial(teaching.changed, RIGHT)
FULL = {
    "test_send": 15.0,
    "test_poll": 15.0,
    "test_publish": 15.0,
    "test_snapshot": 20.0,
    "test_late": 10.0,
    "test_late_hidden": 15.0,
    "test_few_fences": 0.0,
}


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_fences():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_fences": 3.0}


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 0.0


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == dict.fromkeys(FULL, 0.0)


def test_a_producer_without_fences_is_right_only_in_the_order_of_posting():
    cells = {name: text.replace("write_fenced", "write") for name, text in RIGHT.items()}
    made = score(LAB, cells)
    assert made.points == FULL | {"test_send": 4.5, "test_publish": 4.5}
    assert made.ratios == {}
    told = made.feedback["test_send"]
    assert "the flag is there and word " in told
    lines = [line.split() for line in told.splitlines()]
    head = next(n for n, words in enumerate(lines) if words[:1] == ["event"])
    assert lines[head] == ["event", "producer", "posts", "arrives", "consumer"]
    assert lines[-1][1:] == ["word", "0", "=", "0x1"], "the flag arrives last, and too early"


def test_a_consumer_without_fences_tears_messages_and_is_shown_which_words():
    cells = {name: text.replace("box.fence()", "pass") for name, text in RIGHT.items()}
    made = score(LAB, cells)
    assert made.points == FULL | {"test_poll": 4.5, "test_snapshot": 6.0}
    told = made.feedback["test_snapshot"]
    assert "it returned parts of messages:" in told
    assert len(set(re.findall(r"word \d: 0x.* of (message \d|no message)", told))) > 1
    assert "(an older value)" in told


def test_the_last_writes_of_the_message_before_are_still_on_their_way():
    early = "(flag_word, 2 * number - 1)"
    made = score(LAB, changed("publish", f"write_fenced{early}", f"write{early}"))
    assert made.points == FULL | {"test_publish": 4.5}
    assert "so message 1 is whole, and word" in made.feedback["test_publish"]


@pytest.mark.more
def test_a_sequence_number_that_is_loaded_once_does_not_see_what_came_meanwhile():
    cells = changed("snapshot", "values if box.load(flag_word) == before else None", "values")
    made = score(LAB, cells, "test_snapshot")
    assert made.total == 6.0


@pytest.mark.more
def test_a_late_write_to_one_word_is_one_of_three_wrong_orders():
    cells = changed("late", "in (word, flag_word)", "== flag_word")
    made = score(LAB, cells)
    assert made.points == FULL | {"test_late": 8.0, "test_late_hidden": 12.0}
    assert "two writes to one word" in made.feedback["test_late"]
    assert "is delayed by the provider 'fault'" in made.feedback["test_late"]


CHEATS = {
    "says that there is no message": {"poll": "None", "snapshot": "None", "snapshot_fast": "None"},
    "finds no flaw": {"late": "None"},
    "finds a flaw everywhere": {"late": "0"},
    "calls the grader's own tests": {
        "late": "__import__('dgkit.teach').teach.memory_order.test_late(lambda _: None)"
    },
}


@pytest.mark.cheat
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_scores_nothing(cheat):
    cells = {
        name: f"def {name}(*given):\n    return {each}" for name, each in CHEATS[cheat].items()
    }
    only = {"poll": ("test_poll", "test_snapshot"), "late": ("test_late", "test_late_hidden")}
    made = score(LAB, cells, *only[next(iter(cells))])
    assert made.total == 0.0, made.feedback


@pytest.mark.parametrize("position", [0, 1])
def test_a_delayed_write_is_overtaken_unless_a_fence_waits_for_it(position):
    program = [[1, 7, False], [2, 8, False], [0, 1, False]]
    made = memory_order.replay(program, position)
    assert made.arrived[-1] == position
    assert made.seen == tuple(0 if word == position + 1 else made.right[word] for word in range(3))
    program[2][2] = True
    made = memory_order.replay(program, position)
    assert made.arrived == (1 - position, position, 2)
    assert not made.wrong


@pytest.mark.parametrize(
    ("program", "delayed", "why"),
    [
        ([[1, 5, False]], 0, "no write of the program is to word 0"),
        ([], 0, "the program has 0 writes; it needs 1 to 64"),
        ([[0, 1]], 0, "write 0 is"),
        ([[0, 1 << 64, True]], 0, "write 0 is"),
        ([["0", 1, True]], 0, "write 0 is"),
        ([[0, 1, True]], 1, "delayed is 1; the writes are 0 to 0"),
        ([[0, 1, True]] * 65, 0, "the program has 65 writes"),
    ],
)
def test_a_program_that_cannot_be_replayed_is_refused_with_the_reason(program, delayed, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        memory_order.replay(program, delayed)
