# SPDX-License-Identifier: Apache-2.0
"""BlueFields: which there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.bluefield import (
    ARM,
    AT,
    BF1,
    BF2,
    BF3,
    CX7,
    DPU,
    OTHER,
    PCI,
    cards,
    nets,
    settings,
)
from support.doctor.machines import judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import bluefield
from dgkit.doctor.facts.bluefield import Mode
from dgkit.doctor.facts.firmware import adapters
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine


def test_the_two_ports_of_a_card_are_one_card() -> None:
    here = machine(cards((AT, BF3), ("0000:9f:00.1", BF3), ("0000:b1:00.0", CX7)))
    first, second = here.know(adapters)
    assert (first.model, first.functions) == ("BlueField-3", (AT, "0000:9f:00.1"))
    assert (second.model, second.bluefield) == ("ConnectX-7", False)


@pytest.mark.parametrize(
    ("device", "goal", "verdict"),
    [
        (BF3, Goal.ARM_DMA, Verdict.OK),
        (BF2, Goal.GPUNETIO, Verdict.OK),
        (BF1, Goal.ARM_DMA, Verdict.FAIL),
        (BF1, Goal.RDMA, Verdict.OK),
        (CX7, Goal.ARM_DMA, Verdict.FAIL),
        (CX7, Goal.GPUNETIO, Verdict.NOT_APPLICABLE),
        (CX7, Goal.RDMA, Verdict.NOT_APPLICABLE),
        (CX7, Goal.LAPTOP, Verdict.NOT_APPLICABLE),
    ],
)
def test_the_card_that_a_goal_needs_is_there_or_not(
    device: str, goal: Goal, verdict: Verdict
) -> None:
    (found,) = judge("bluefield-present", machine(cards((AT, device))), goal=goal)
    assert found.verdict is verdict


def test_a_machine_without_any_nic_cannot_have_gpunetio() -> None:
    bare = machine(cards())
    assert judge("bluefield-present", bare, goal=Goal.GPUNETIO)[0].verdict is Verdict.FAIL
    laptop = judge("bluefield-present", bare, goal=Goal.LAPTOP)[0]
    assert laptop.verdict is Verdict.NOT_APPLICABLE


def test_arm_cores_whose_nic_is_not_there_are_told_apart_from_a_host_without_a_card() -> None:
    (found,) = judge("bluefield-present", machine({**cards(), **ARM}))
    assert found.verdict is Verdict.FAIL
    assert "Arm" in found.found


def test_a_machine_whose_pci_devices_are_not_read_is_not_judged() -> None:
    denied = Reading(fault="denied", why="root alone")
    (found,) = judge("bluefield-present", machine({f"names {PCI}": denied}))
    assert found.verdict is Verdict.UNKNOWN
    assert "Root alone." in found.why


def test_a_first_bluefield_beside_a_later_one_is_no_fault() -> None:
    here = machine(cards((AT, BF1), (OTHER, BF3)))
    verdicts = {one.subject: one.verdict for one in judge("bluefield-present", here)}
    assert verdicts == {AT: Verdict.NOT_APPLICABLE, OTHER: Verdict.OK}


def test_a_virtual_machine_has_its_card_passed_through() -> None:
    guest = {**cards(), "text /proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}
    for goal in (Goal.ARM_DMA, Goal.GPUNETIO):
        (found,) = judge("bluefield-present", machine(guest), goal=goal)
        assert "through to this virtual machine" in found.remedy[0]


@given(st.text() | st.sampled_from(["BF_MODE", "DEV_NAME pcie-", "BF_MODE DPU mode\nDEV_NAME x"]))
def test_no_text_of_rshim_makes_it_raise(text: str) -> None:
    here = machine({"names /dev": ["rshim0"], "text /dev/rshim0/misc": text})
    assert set(bluefield.rshim(here).values()) <= set(Mode)


def test_each_finding_but_n_a_names_its_source() -> None:
    machines: list[Machine] = [
        machine({**cards((AT, BF3)), **settings(DPU)}),
        machine({**cards((AT, BF2)), **nets(tmfifo_net0="")}),
        machine({**cards(), **ARM}),
    ]
    for here in machines:
        for goal in Goal:
            for found in judge("bluefield", here, goal=goal):
                assert found.verdict is Verdict.NOT_APPLICABLE or found.sources, found
