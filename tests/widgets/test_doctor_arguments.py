# SPDX-License-Identifier: Apache-2.0
"""DoctorPanel(...): which machines, which goal, how much memory; what is refused, what fails."""

import gc

import pytest
from doctor.snapshots import snapshot_file
from support.doctor.panel import saved

import dgkit.widgets.doctor.diagnosis_task as diagnosis_task
from dgkit.doctor import Goal, Verdict
from dgkit.widgets.doctor import DoctorPanel


def test_a_goal_is_given_by_its_name_or_as_a_goal(tmp_path, view):
    for goal in ("laptop", Goal.LAPTOP):
        assert view(DoctorPanel(saved(tmp_path), goal)).panel.wait(20).goal is Goal.LAPTOP
    with pytest.raises(ValueError, match="no goal 'fast'; choose auto, arm-dma"):
        DoctorPanel(saved(tmp_path), goal="fast")


def test_two_machines_of_one_side_are_refused_at_once(tmp_path):
    both = [saved(tmp_path), saved(tmp_path, name="other")]
    with pytest.raises(ValueError, match=r"test.snap and other.snap are both hosts"):
        DoctorPanel(both)


def test_no_file_at_all_is_not_this_machine():
    with pytest.raises(ValueError, match="snapshots is empty"):
        DoctorPanel([])


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_arguments_that_are_refused_leave_nothing_to_close(tmp_path):
    for wrong in ({"cheese": 1}, {"size": 1.5}):
        with pytest.raises(TypeError):
            DoctorPanel(saved(tmp_path), **wrong)
        gc.collect()


def test_the_memory_to_be_lent_is_judged_as_on_the_command_line(tmp_path, view):
    path = snapshot_file("small-bar1")
    for size, verdict in (("64M", Verdict.WARN), ("1G", Verdict.FAIL)):
        shown = view(DoctorPanel(path, size=size))
        assert shown.panel.wait(20).of("bar1-size")[0].verdict is verdict
        shown.ask("check", check="bar1-size")
        assert shown.panel.wait(20).of("bar1-size")[0].verdict is verdict


def test_what_went_wrong_before_a_view_was_there_is_told_to_it(tmp_path, view, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("this is why")

    monkeypatch.setattr(diagnosis_task, "diagnose", refuse)
    shown = view(DoctorPanel(saved(tmp_path)))
    with pytest.raises(ValueError, match="this is why"):
        shown.panel.wait(20)
    assert shown.ask("hello")["failed"]["text"] == "this is why"


def test_a_drawing_that_fails_takes_no_finding_with_it(tmp_path, view, monkeypatch):
    def fails(_):
        raise OverflowError("an odd reading")

    monkeypatch.setattr(diagnosis_task, "topology_model", fails)
    shown = view(DoctorPanel(saved(tmp_path)))
    assert shown.panel.wait(20).findings
    assert shown.ask("hello")["topology"] is None
