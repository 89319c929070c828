# SPDX-License-Identifier: Apache-2.0
"""The time line of transfers: lanes, rows where they overlap, bursts, throughput."""

import pytest
from support.jupyter.transfer import ended, form

from dgkit.widgets.transfer.timeline import BURST_GAP_NS, timeline
from dgkit.widgets.transfer.transfer_panel import TransferPanel

BASE = 10**18


def record(number, submit, post, complete, **about):
    known = {"op": "write", "path": "worker", "status": "OK", "size": 1000}
    stamps = {"submit_ns": BASE + submit, "post_ns": post, "complete_ns": complete, "dma": "WRITE"}
    return {"number": number, **known, **stamps, **about}


def test_without_a_dma_there_is_no_time_line():
    assert timeline([]) is None
    assert timeline([{"number": 1, "status": "CLOSED", "size": 0}]) is None


def test_times_are_exact_from_the_first_submit_on():
    found = timeline([record(1, 7, 2, 10), record(2, 30, 1, 6)])
    assert found["lanes"] == [["write, worker", 1]]
    assert found["bars"] == [
        [1, 0, 0, [["WRITE", 0, 2, 10]]],
        [2, 0, 0, [["WRITE", 23, 24, 29]]],
    ]


def test_both_dmas_of_a_staged_transfer_are_in_one_row_which_is_taken_from_the_first_on():
    staged = {"first": [-40, -38, -10], "read_ns": 30, "write_ns": 20, "chunks": 1}
    found = timeline([
        record(1, 50, 1, 20, **staged), record(2, 60, 1, 5), record(3, 130, 1, 20, **staged),
    ])  # fmt: skip
    assert found["lanes"] == [["write, worker", 2]]
    assert found["bars"] == [
        [1, 0, 0, [["READ", 0, 2, 30], ["WRITE", 40, 41, 60]]],
        [2, 0, 1, [["WRITE", 50, 51, 55]]],
        [3, 0, 0, [["READ", 80, 82, 110], ["WRITE", 120, 121, 140]]],
    ]
    assert (found["all"]["from"], found["all"]["to"]) == (0, 140)


def test_the_first_dma_of_a_transfer_without_staging_is_of_the_same_operation():
    direct = {"first": [-40, -38, -10], "read_ns": 0, "write_ns": 50, "chunks": 2}
    ((*_, dmas),) = timeline([record(1, 50, 1, 20, **direct)])["bars"]
    assert [dma[0] for dma in dmas] == ["WRITE", "WRITE"]


def test_dmas_that_overlap_are_in_rows_and_a_free_row_is_used_again():
    found = timeline([
        record(1, 0, 1, 100), record(2, 10, 1, 20), record(3, 40, 1, 20), record(4, 100, 1, 5),
    ])  # fmt: skip
    assert [bar[2] for bar in found["bars"]] == [0, 1, 1, 0]
    assert found["lanes"] == [["write, worker", 2]]


def test_each_operation_and_path_has_a_lane():
    found = timeline([
        record(1, 0, 1, 9), record(2, 1, 1, 9, op="read"), record(3, 2, 1, 3, path="inline"),
    ])  # fmt: skip
    assert found["lanes"] == [["read, worker", 1], ["write, inline", 1], ["write, worker", 1]]
    assert [(bar[0], bar[1]) for bar in found["bars"]] == [(1, 2), (2, 0), (3, 1)]


def test_the_latest_burst_is_what_came_without_a_pause():
    late = BURST_GAP_NS + 200
    found = timeline([record(1, 0, 1, 100), record(2, late, 1, 50), record(3, late + 60, 1, 40)])
    assert (found["all"]["from"], found["all"]["to"], found["all"]["count"]) == (0, late + 100, 3)
    assert (found["latest"]["from"], found["latest"]["to"]) == (late, late + 100)
    assert (found["latest"]["count"], found["latest"]["bytes"]) == (2, 2000)
    near = timeline([record(1, 0, 1, 100), record(2, BURST_GAP_NS + 100, 1, 50)])
    assert near["latest"] == near["all"]


def test_throughput_is_of_all_bytes_from_the_first_submit_to_the_last_completion():
    staged = {"first": [-500, -490, -10], "read_ns": 490, "write_ns": 1000}
    found = timeline([record(1, 500, 1, 500, **staged), record(2, 10, 1, 1990)])
    assert found["all"]["rate"] == pytest.approx(2000 / 2000e-9)
    assert timeline([record(1, 0, 1, 10, status="FLUSHED")])["all"]["rate"] is None


def test_a_failed_transfer_is_drawn_but_moves_nothing():
    found = timeline([record(1, 0, 1, 10), record(2, 20, 1, 10, status="FLUSHED", size=500)])
    assert len(found["bars"]) == 2
    assert found["all"]["bytes"] == 1000
    assert found["all"]["rate"] == pytest.approx(1000 / 30e-9)


def test_the_panel_makes_it_when_a_view_asks(session, view):
    panel = view(TransferPanel(session))
    region = session.empty(1 << 20, name="page")
    assert panel.ask("timeline")["timeline"] is None
    panel.ask("start", form=form(region, payload="a", repeat="5"))
    sent, found = ended(panel)["completions"], panel.ask("timeline")["timeline"]
    assert [bar[0] for bar in found["bars"]] == [1, 2, 3, 4, 5]
    for bar, shown in zip(found["bars"], sent, strict=True):
        (first, *_, read), (last, submit, _, complete) = bar[3]
        assert (first, last) == ("READ", "WRITE")
        assert complete - submit == shown["complete_ns"]
        assert read <= submit
    assert found["all"]["bytes"] == sum(one["size"] for one in sent)
