# SPDX-License-Identifier: Apache-2.0
"""Lab 7: what each kind of submission scores."""

import re

import pytest
from support.teaching import score, skeleton, solution

LAB = "lab7"
RIGHT = solution(LAB)
FULL = {
    "test_put": 20.0,
    "test_squares": 25.0,
    "test_transform": 15.0,
    "test_transform_hidden": 10.0,
    "test_post_entry": 8.0,
    "test_poll_entry": 8.0,
    "test_break_request": 4.0,
    "test_few_puts": 0.0,
}


def changed(name, *pairs):
    text = RIGHT[name]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return RIGHT | {name: text}


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_operations():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_puts": 128.0}


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 15.67


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == dict.fromkeys(FULL, 0.0)


def test_a_block_without_barriers_puts_numbers_of_another_round_and_is_shown_which():
    made = score(LAB, changed("squares", ("__syncthreads();", "")), "test_squares")
    assert made.total == 5.0
    told = made.feedback["test_squares"]
    assert "of the far memory is 0x" in told
    assert "of block 0, round 0, thread " in told
    assert "^^" in told


def test_a_status_that_is_made_up_costs_the_pieces_that_do_not_fit():
    cells = changed("put_pieces", ("status[me] = dg_wait", "status[me] = 0 & dg_wait"))
    made = score(LAB, cells, "test_put")
    assert made.total == 13.33
    assert (
        "the status of thread 19 is 0 (OK); it must be 7 (OUT_OF_BOUNDS)"
        in made.feedback["test_put"]
    )


@pytest.mark.cheat
def test_a_kernel_that_only_says_that_it_put_scores_nothing():
    put = "dg_wait(q, dg_put(q, remote, far_base + at, local, at, size))"
    made = score(LAB, changed("put_pieces", (put, "DG_OK")), "test_put")
    assert made.total == 0.0
    assert "byte 64 of the far memory is 0x00" in made.feedback["test_put"]


def test_what_does_not_compile_is_shown_with_its_line():
    made = score(LAB, changed("put_pieces", ("dg_wait(q", "dg_await(q")), "test_put")
    assert made.total == 0.0
    assert "kernel.cu:" in made.feedback["test_put"]
    assert "dg_await" in made.feedback["test_put"]


@pytest.mark.more
def test_a_signal_of_each_thread_scores_nothing():
    cells = changed(
        "squares",
        ("if (me == 0) {", "{"),
        ("block * size, size", "block * size + 4 * me, 4"),
        ("to += 8 * gridDim.x", "to += 8 * gridDim.x + 4 * me"),
    )
    made = score(LAB, cells, "test_squares")
    assert made.total == 0.0
    # whichever it is that the grader sees first while the kernel runs
    seen = r"the signal of block 0 is (\d+ after 1 rounds|1, and the numbers of round 0 are not)"
    assert re.search(seen, made.feedback["test_squares"])


@pytest.mark.more
def test_a_get_that_is_not_waited_for_scores_nothing():
    wait = "dg_get_wait(q, dg_get(q, remote, at, local, 0, chunk))"
    post = "(dg_get(q, remote, at, local, 0, chunk), 0)"
    made = score(LAB, changed("transform", (wait, post)), "test_transform")
    assert made.total == 0.0


@pytest.mark.more
def test_going_on_after_an_error_costs_nothing_since_all_later_chunks_fail_too():
    cells = changed("transform", ("break;", ";"))
    made = score(LAB, cells, "test_transform", "test_transform_hidden")
    assert made.points == {"test_transform": 15.0, "test_transform_hidden": 10.0}


@pytest.mark.parametrize(
    ("cell", "old", "new", "points", "told"),
    [
        ("post_entry", 'ring.doorbell(data[:8])', "", 0.0, "the doorbell was rung 0 times"),
        ("post_entry", '">IIIIQ', '"<IIIIQ', 0.0, "the NIC "),
        ("post_entry", "remote, rkey, 0", "remote, lkey, 0", 0.0, ": entry 0: "),
        ("post_entry", "doorbell(data[:8])", "doorbell(bytes(8))", 2.4, "not the first 8 bytes"),
        ("poll_entry", "or owner != index // 8 % 2", "", 5.33, "it must be None"),
        ("poll_entry", "data[55] if kind == 13 else 0", "kind", 5.33, "it must be 0x13"),
        ("break_request", "[wrong, request]", "[request, wrong]", 2.67, "with 0x13, not 0x05"),
        ("break_request", "[wrong, request]", "7", 2.67, "must return a list of 1 to 4 requests"),
    ],
)  # fmt: skip
def test_a_wrong_entry_doorbell_or_key_costs_its_concept(cell, old, new, points, told):
    made = score(LAB, changed(cell, (old, new)), f"test_{cell}")
    assert (made.total, told in made.feedback[f"test_{cell}"]) == (points, True), made.feedback


def test_an_entry_that_is_announced_before_it_is_written_caps_its_part():
    entry = "    ring.entry(index % 8, data)\n"
    last = changed("post_entry", (entry, ""), ("data[:8])\n", f"data[:8])\n{entry}"))
    made = score(LAB, last, "test_post_entry")
    assert made.total == 2.4
    told = made.feedback["test_post_entry"]
    assert "the record announces 1 entries, and the last is not in" in told


CHEATS = {
    "a kernel that never ends": "while (true) {\n}",
    "a kernel that crashes": "*(volatile int *)8 = 1;",
    "a kernel that shrinks the memory that it shares": """
    for (int fd = 3; fd < 64; fd++)
        if (ftruncate(fd, 0)) {
        }
    status[0] = 0;
""",
}


@pytest.mark.cheat
@pytest.mark.more
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_scores_nothing_and_leaves_the_grader_alone(cheat):
    kernel = f"""
#include <dgkit_device.cuh>
#include <stdlib.h>
#include <unistd.h>
extern "C" __global__ void put_pieces(dg_gpu_queue *q, unsigned remote, unsigned local, int *status,
                                      unsigned size)
{{
{CHEATS[cheat]}
}}
"""
    cells = {"put_pieces": f"def put_pieces():\n    return {kernel!r}\n"}
    made = score(LAB, cells, "test_put", time_s=2.0)
    assert made.total == 0.0
