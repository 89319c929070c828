# SPDX-License-Identifier: Apache-2.0
"""The mode of a BlueField: what it is, what it means for a goal, and how it is changed."""

from __future__ import annotations

import pytest
from support.doctor.bluefield import (
    ARM,
    AT,
    BF2,
    BF3,
    CX7,
    DPU,
    NIC,
    OTHER,
    asked,
    cards,
    nets,
    settings,
    table,
)
from support.doctor.machines import judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import bluefield
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine


def mode(goal: Goal, *readings: dict[str, object], device: str = BF3) -> Finding:
    made = {k: v for one in (cards((AT, device)), *readings) for k, v in one.items()}
    (found,) = judge("bluefield-mode", machine(made), goal=goal)
    return found


@pytest.mark.parametrize("device", [BF2, BF3])
@pytest.mark.parametrize(
    ("goal", "now", "verdict"),
    [
        (Goal.ARM_DMA, DPU, Verdict.OK),
        (Goal.ARM_DMA, NIC, Verdict.FAIL),
        (Goal.ARM_DMA, (0, 0, 0, 0, 0), Verdict.FAIL),
        (Goal.GPUNETIO, NIC, Verdict.OK),
        (Goal.GPUNETIO, DPU, Verdict.FAIL),
        (Goal.RDMA, NIC, Verdict.OK),
        (Goal.RDMA, DPU, Verdict.OK),
    ],
)
def test_arm_cores_want_dpu_mode_and_gpunetio_wants_nic_mode(
    device: str, goal: Goal, now: tuple[int, ...], verdict: Verdict
) -> None:
    assert mode(goal, settings(now), device=device).verdict is verdict


def test_the_way_to_nic_mode_is_the_guides_line_with_the_link_types_as_they_are() -> None:
    found = mode(Goal.GPUNETIO, settings(DPU, LINK_TYPE_P1=1, LINK_TYPE_P2=2))
    line = (
        f"sudo mlxconfig -d {AT} --yes set LINK_TYPE_P1=1 LINK_TYPE_P2=2 INTERNAL_CPU_MODEL=1 "
        "INTERNAL_CPU_PAGE_SUPPLIER=1 INTERNAL_CPU_ESWITCH_MANAGER=1 INTERNAL_CPU_IB_VPORT0=1 "
        "INTERNAL_CPU_OFFLOAD_ENGINE=1"
    )
    assert found.remedy[0] == line


POWER = "(sudo ipmitool power cycle cuts it at once, without a shutdown)"


def test_a_power_cycle_begins_with_the_arm_cores_and_the_host_shut_down() -> None:
    found = mode(Goal.GPUNETIO, settings(DPU))
    assert f"sudo mlxfwreset -d {AT} --yes -l 1 -t 4 r" in found.remedy
    assert found.remedy[-1].startswith("# then shut the host down")
    assert POWER in found.remedy[-1]
    assert "warm reboot" in found.disagree
    assert not any(line.startswith("sudo ipmitool") for line in found.remedy)


def test_a_bluefield_3_in_nic_mode_has_no_arm_cores_to_shut_down() -> None:
    three, two = (mode(Goal.ARM_DMA, settings(NIC), device=one) for one in (BF3, BF2))
    assert not any("mlxfwreset" in line for line in three.remedy)
    assert any("mlxfwreset" in line for line in two.remedy)


def test_the_arm_side_is_not_told_to_cut_power_itself() -> None:
    found = mode(Goal.GPUNETIO, settings(DPU), ARM)
    assert found.remedy[0].startswith("sudo mlxconfig")
    assert all(line.startswith("#") and "ipmitool" not in line for line in found.remedy[1:])


def test_only_settings_that_the_card_showed_are_set() -> None:
    now = {"INTERNAL_CPU_MODEL": 1, "INTERNAL_CPU_OFFLOAD_ENGINE": 0}
    found = mode(Goal.GPUNETIO, asked(bluefield.QUERIED, table(now)))
    set_ = f"sudo mlxconfig -d {AT} --yes set INTERNAL_CPU_MODEL=1 INTERNAL_CPU_OFFLOAD_ENGINE=1"
    assert found.remedy[0] == set_


def two(
    goal: Goal, first: tuple[int, ...], second: tuple[int, ...] | None, device: str = BF3
) -> dict[str, Finding]:
    """What is said of two cards, the second of which may have settings, too."""
    there = cards((AT, BF3), (OTHER, device)) | settings(first)
    if second is not None:
        values = dict(zip(bluefield.MODE, second, strict=True))
        there |= asked(bluefield.QUERIED, table(values), OTHER)
    said = judge("bluefield-mode", machine(there), goal=goal)
    return {found.subject.partition("(")[2].rstrip(")"): found for found in said}


def test_where_one_card_is_in_the_right_mode_the_other_may_stay_as_it_is() -> None:
    for goal, fits, other in ((Goal.ARM_DMA, AT, OTHER), (Goal.GPUNETIO, OTHER, AT)):
        for second in (NIC, None) if goal is Goal.ARM_DMA else (NIC,):
            said = two(goal, DPU, second)
            assert said[fits].verdict is Verdict.OK
            assert said[other].verdict is Verdict.NOT_APPLICABLE
            assert fits in said[other].why
            assert not said[other].remedy
    both = two(Goal.ARM_DMA, NIC, NIC)
    assert {one.verdict for one in both.values()} == {Verdict.FAIL}


def test_a_connectx_drives_gpunetio_beside_a_bluefield_in_any_mode() -> None:
    (found,) = two(Goal.GPUNETIO, DPU, None, CX7).values()
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "ConnectX-7" in found.why
    (found,) = two(Goal.ARM_DMA, NIC, None, CX7).values()
    assert found.verdict is Verdict.FAIL


ARM_AT = "0000:03:00.0"


def arm_side(level: str = "PRIVILEGED", now: tuple[int, ...] = DPU) -> Machine:
    values = dict(zip(bluefield.MODE, now, strict=True))
    query = f"Current device configurations:\n-----\nlevel                         : {level}\n"
    return machine(
        {
            **cards((ARM_AT, BF3)),
            **ARM,
            **asked(bluefield.QUERIED, table(values), ARM_AT),
            **nets(p0="p0", pf0hpf="c1pf0"),
            f"run mlxprivhost -d {ARM_AT} q": query,
        }
    )


def test_under_zero_trust_no_command_for_the_mode_is_for_the_host() -> None:
    host = machine({**cards((AT, BF3)), **settings(DPU)})
    for level in ("RESTRICTED", "PRIVILEGED"):
        said = judge("bluefield-mode", host, arm_side(level), goal=Goal.GPUNETIO)
        found = {one.side: one for one in said}
        assert found["dpu"].verdict is Verdict.NOT_APPLICABLE
        assert found["host"].verdict is Verdict.FAIL
        typed = [line for line in found["host"].remedy if not line.startswith("#")]
        assert bool(typed) is (level == "PRIVILEGED")
        assert any(ARM_AT in line for line in found["host"].remedy) is (level == "RESTRICTED")


def test_a_wrong_mode_is_told_of_once_for_both_sides() -> None:
    host = machine({**cards((AT, BF3)), **settings(NIC)})
    said = {one.side: one for one in judge("bluefield-mode", host, arm_side(now=NIC))}
    assert said["host"].verdict is Verdict.FAIL
    assert said["dpu"].verdict is Verdict.NOT_APPLICABLE


def test_the_way_back_to_dpu_mode_leaves_the_links_alone() -> None:
    found = mode(Goal.ARM_DMA, settings(NIC, LINK_TYPE_P1=1))
    assert "INTERNAL_CPU_OFFLOAD_ENGINE=0" in found.remedy[0]
    assert "LINK_TYPE" not in found.remedy[0]
    assert "NIC mode" in found.disagree
    assert found.why.endswith("In NIC mode it serves --goal rdma and --goal gpunetio.")


def test_a_mode_that_is_set_and_not_yet_in_force_wants_a_power_cycle_only() -> None:
    found = mode(Goal.ARM_DMA, settings(NIC, DPU))
    assert found.verdict is Verdict.FAIL
    assert not any("mlxconfig" in line for line in found.remedy)
    assert "takes effect after a power cycle" in found.why


def test_a_mode_that_the_next_power_cycle_will_take_away_is_warned_about() -> None:
    found = mode(Goal.ARM_DMA, settings(DPU, NIC))
    assert found.verdict is Verdict.WARN
    assert "works until the next power cycle" in found.why
    assert "INTERNAL_CPU_OFFLOAD_ENGINE=0" in found.remedy[0]


def test_a_bluefield_2_with_settings_of_both_modes_is_warned_about() -> None:
    half = settings((1, 0, 1, 1, 1))
    assert mode(Goal.GPUNETIO, half, device=BF2).verdict is Verdict.WARN
    assert mode(Goal.GPUNETIO, half, device=BF3).verdict is Verdict.OK


def test_without_root_the_mode_is_not_told_and_the_command_is() -> None:
    refused = asked(bluefield.QUERIED, Reading(said="-E- Failed to open the device", code=3))
    found = mode(Goal.ARM_DMA, refused, {"ask euid": 1000})
    assert found.verdict is Verdict.UNKNOWN
    assert found.remedy[0].startswith(f"sudo mlxconfig -d {AT} -e q INTERNAL_CPU_MODEL")
    assert mode(Goal.RDMA, refused, {"ask euid": 1000}).verdict is Verdict.OK


def test_without_mlxconfig_the_way_out_is_mstconfig() -> None:
    found = mode(Goal.ARM_DMA)
    assert found.verdict is Verdict.UNKNOWN
    assert "mstflint" in found.remedy[0]
    assert found.remedy[1].startswith("sudo mstconfig")


def test_a_card_that_tells_nothing_of_its_mode_is_not_judged() -> None:
    found = mode(Goal.ARM_DMA, asked(bluefield.QUERIED, table({"LINK_TYPE_P1": 2})))
    assert found.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("DPU mode", Verdict.OK),
        ("NIC mode", Verdict.FAIL),
        ("Unknown", Verdict.UNKNOWN),
    ],
)
def test_the_rshim_driver_tells_the_mode_where_mlxconfig_does_not(
    word: str, verdict: Verdict
) -> None:
    misc = f"DISPLAY_LEVEL   0 (0:basic)\nBF_MODE         {word}\nDEV_NAME        pcie-{AT[:-1]}2\n"
    rshim = {"names /dev": ["null", "rshim0"], "text /dev/rshim0/misc": misc}
    assert mode(Goal.ARM_DMA, rshim).verdict is verdict


@pytest.mark.parametrize(
    ("device", "ports", "verdict"),
    [
        (BF2, {"p0": "p0\n", "pf0hpf": "c1pf0\n"}, Verdict.OK),
        (BF2, {"p0": "p0\n", "rep": "pf0\n"}, Verdict.OK),
        (BF2, {"p0": "p0\n", "en3f0pf0sf0": "pf0sf0\n"}, Verdict.UNKNOWN),
        (BF2, {"oob_net0": ""}, Verdict.UNKNOWN),
        (BF3, {"oob_net0": ""}, Verdict.OK),  # its Arm cores run in DPU mode alone
    ],
)
def test_on_the_arm_side_the_mode_shows_by_representors_and_by_its_running(
    device: str, ports: dict[str, str], verdict: Verdict
) -> None:
    assert mode(Goal.ARM_DMA, nets(**ports), ARM, device=device).verdict is verdict


def test_a_dpu_beside_the_host_tells_the_mode_of_the_hosts_only_card() -> None:
    arm = machine({**cards(("0000:03:00.0", BF2)), **ARM, **nets(p0="p0", pf0hpf="c1pf0")})
    host = machine(cards((AT, BF2)))
    both = judge("bluefield-mode", host, arm)
    assert {one.side: one.verdict for one in both} == {"host": Verdict.OK, "dpu": Verdict.OK}
    two = machine(cards((AT, BF2), ("0000:b1:00.0", BF2)))
    unsure = [one for one in judge("bluefield-mode", two, arm) if one.side == "host"]
    assert {one.verdict for one in unsure} == {Verdict.UNKNOWN}


@pytest.mark.parametrize("level", ["RESTRICTED", "PRIVILEGED"])
def test_an_arm_side_that_restricts_the_host_says_where_to_type(level: str) -> None:
    query = f"Current device configurations:\n-----\nlevel                         : {level}\n"
    said = {f"run mlxprivhost -d {AT} q": query}
    found = mode(Goal.ARM_DMA, settings(DPU), ARM, said)
    assert found.verdict is Verdict.OK
    assert ("zero trust" in found.why) is (level == "RESTRICTED")


def test_no_card_has_no_mode() -> None:
    assert judge("bluefield-mode", machine(cards()))[0].verdict is Verdict.NOT_APPLICABLE
