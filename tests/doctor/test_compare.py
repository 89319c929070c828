# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor --compare A B`: what differs, and what decides the goal first."""

import json

from doctor.snapshots import machine, snapshot_file

from dgkit.cli import main
from dgkit.doctor.finding import Verdict
from dgkit.doctor.format.pages import comparison_page
from dgkit.doctor.goals import Goal
from dgkit.doctor.snapshot_comparison import Comparison, compare


def compared(first: str, second: str, goal: Goal | None = None) -> Comparison:
    return compare(machine(first), machine(second), goal=goal)


def text(found: Comparison) -> list[str]:
    return ["".join(span.text for span in line) for line in comparison_page(found)]


def test_the_check_that_blocks_one_of_two_machines_comes_first():
    found = compared("dgx-a100", "container", Goal.RDMA)
    first = found.differences[0]
    assert first.check in ("memlock", "container")
    assert (first.is_relevant, first.matters, max(first.verdicts)) == (True, True, Verdict.FAIL)
    assert {one.name for one, _ in found.paths} >= {"rdma-gpu-dmabuf"}
    order = [one.is_relevant for one in found.differences]
    assert order == sorted(order, reverse=True)


def test_a_mode_is_all_that_differs_between_two_states_of_one_card():
    found = compared("bf2-dpu-mode", "bf2-nic-mode")
    assert [one.check for one in found.differences] == ["bluefield-mode"]
    assert found.second.goal is found.first.goal is Goal.ARM_DMA
    shown = "\n".join(text(found))
    assert "A ok      DPU mode" in shown
    assert "B fail    NIC mode" in shown
    assert "2 readings differ" in shown


def test_a_recording_agrees_with_itself():
    found = compared("pix", "pix")
    assert (found.differences, found.readings) == ((), ())
    assert "Nothing that the doctor judges for this goal differs." in text(found)


def test_the_page_fits_a_screen():
    for first, second in (("dgx-a100", "container"), ("pix", "laptop"), ("dgx-spark", "sys")):
        page = text(compared(first, second))
        assert len(page) <= 40
        assert max(map(len, page)) <= 100


def test_the_command_prints_json_and_its_exit_code_says_whether_a_verdict_differs(capsys):
    good, bad = (str(snapshot_file(name)) for name in ("bf2-dpu-mode", "bf2-nic-mode"))
    assert main(["doctor", "--compare", good, bad, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["verdicts"], found["differences"][0]["decides"]) == (["ok", "fail"], True)
    assert main(["doctor", "--compare", good, good]) == 0
    assert main(["doctor", "--compare", good, "nowhere.snap"]) == 2
    assert main(["doctor", "--compare", good, bad, "--from", good]) == 2
    assert "exclude each other" in capsys.readouterr().err
