# SPDX-License-Identifier: Apache-2.0
"""Checks that are asked for by name, and the goal that they are judged for."""

import pytest
from doctor.snapshots import NAMES, snapshot_file

import dgkit
from dgkit.doctor import Goal, Verdict


def test_a_family_that_the_goal_asks_for_in_part_leaves_the_goal_as_it_is() -> None:
    """No remedy turns a healthy DPU into a NIC: the family has only one check of NIC mode."""
    found = dgkit.doctor(checks="bluefield", snapshots=snapshot_file("bf3-dpu-mode"))
    assert found.goal is Goal.ARM_DMA
    assert [one.verdict for one in found.of("bluefield-mode")] == [Verdict.OK]
    (link,) = found.of("bluefield-link")
    assert (link.verdict, link.found) == (Verdict.NOT_APPLICABLE, "arm-dma does not need it")
    assert "gpunetio" in link.needed
    assert found.verdict is Verdict.OK


def test_two_sides_are_both_named_as_the_reason_for_the_goal() -> None:
    host, dpu = snapshot_file("bf3-dpu-mode"), snapshot_file("bf3-arm")
    assert dgkit.doctor(snapshots=dpu).chosen == "this is the Arm side of a BlueField"
    both = dgkit.doctor(snapshots=[host, dpu]).chosen
    assert both == "these are a host and the Arm side of a BlueField"


def test_a_check_that_the_goal_does_not_have_turns_to_one_that_has_it() -> None:
    found = dgkit.doctor(checks="bar1-size", snapshots=snapshot_file("laptop"))
    assert found.goal is not Goal.LAPTOP
    assert found.chosen == "the goal laptop needs none of these checks"


def test_a_named_check_is_judged_for_a_goal_to_which_it_applies() -> None:
    """`Device("verbs")` refers to this check on a machine without a GPU and a NIC."""
    found = dgkit.doctor(checks="rdma-devices", snapshots=snapshot_file("laptop"))
    (only,) = found.findings
    assert (found.goal, only.verdict) == (Goal.RDMA, Verdict.FAIL)
    assert only.remedy == ("# install a NIC with RDMA",)


@pytest.mark.parametrize("check", ["doca-libraries", "driver-version", "rdma-core"])
def test_a_named_check_of_a_device_that_is_missing_says_why_it_may_be(check: str) -> None:
    (only,) = dgkit.doctor(checks=check, snapshots=snapshot_file("laptop")).findings
    assert only.verdict is Verdict.NOT_APPLICABLE
    assert "not passed through to this virtual machine" in only.why


def test_a_goal_that_was_asked_for_stays_whatever_the_checks() -> None:
    found = dgkit.doctor("laptop", checks="bar1-size", snapshots=snapshot_file("pix"))
    assert found.goal is Goal.LAPTOP
    (only,) = found.findings
    assert (only.check, only.verdict) == ("bar1-size", Verdict.NOT_APPLICABLE)
    assert only.needed == "--goal arm-dma, rdma, gpunetio"


@pytest.mark.parametrize("goal", Goal)
def test_a_way_that_works_for_sure_has_an_answer_to_all_that_it_rests_on(goal: Goal) -> None:
    for name in NAMES:
        found = dgkit.doctor(goal, snapshots=snapshot_file(name))
        dark = {one.check for one in found.findings if one.verdict is Verdict.UNKNOWN}
        for way in found.data_paths:
            if way.word == "works":
                assert not dark & {"bluefield-mode", "dmabuf-gpu", "acs", "topology"} or (
                    way.name
                    in ("cuda", "soft", "softdoca", "gpunetio-softdoca", "rdma-host", "doca-host")
                ), (name, way.name)
