"""BlueFields: which there are, their mode, their links, and the way to their Arm cores."""

from __future__ import annotations

import pytest
from bluefield_rig import ARM, AT, BF1, BF2, BF3, CX7, PCI, asked, cards, nets, table
from doctor_rig import judge, machine
from hypothesis import given
from hypothesis import strategies as st

from dgkit.doctor import Verdict
from dgkit.doctor.facts import bluefield
from dgkit.doctor.facts.bluefield import Mode
from dgkit.doctor.facts.firmware import adapters
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.readers.reading import Reading

# (model, page supplier, switch manager, vport 0, offload engine)
DPU, NIC = (1, 0, 0, 0, 0), (1, 1, 1, 1, 1)


def settings(
    now: tuple[int, ...], then: tuple[int, ...] | None = None, **more: int
) -> dict[str, object]:
    """The readings of a card's mode."""
    before = dict(zip(bluefield.MODE, now, strict=True)) | more
    after = dict(zip(bluefield.MODE, then or now, strict=True)) | more
    return asked(bluefield.ASKED, table(before, after))


def mode(goal: Goal, *readings: dict[str, object], device: str = BF3) -> Finding:
    made = {k: v for one in (cards((AT, device)), *readings) for k, v in one.items()}
    (found,) = judge("bluefield-mode", machine(made), goal=goal)
    return found


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
    assert found.verdict is Verdict.CANNOT_TELL
    assert "root alone" in found.why


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
    found = mode(Goal.GPUNETIO, asked(bluefield.ASKED, table(now)))
    set_ = f"sudo mlxconfig -d {AT} --yes set INTERNAL_CPU_MODEL=1 INTERNAL_CPU_OFFLOAD_ENGINE=1"
    assert found.remedy[0] == set_


OTHER = "0000:b1:00.0"


def two(
    goal: Goal, first: tuple[int, ...], second: tuple[int, ...] | None, device: str = BF3
) -> dict[str, Finding]:
    """What is said of two cards, the second of which may have settings, too."""
    there = cards((AT, BF3), (OTHER, device)) | settings(first)
    if second is not None:
        values = dict(zip(bluefield.MODE, second, strict=True))
        there |= asked(bluefield.ASKED, table(values), OTHER)
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


def test_a_first_bluefield_beside_a_later_one_is_no_fault() -> None:
    here = machine(cards((AT, BF1), (OTHER, BF3)))
    verdicts = {one.subject: one.verdict for one in judge("bluefield-present", here)}
    assert verdicts == {AT: Verdict.NOT_APPLICABLE, OTHER: Verdict.OK}


def test_a_virtual_machine_has_its_card_passed_through() -> None:
    guest = {**cards(), "text /proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}
    for goal in (Goal.ARM_DMA, Goal.GPUNETIO):
        (found,) = judge("bluefield-present", machine(guest), goal=goal)
        assert "passed through" in found.remedy[0]


ARM_AT = "0000:03:00.0"


def arm_side(level: str = "PRIVILEGED", now: tuple[int, ...] = DPU) -> Machine:
    values = dict(zip(bluefield.MODE, now, strict=True))
    query = f"Current device configurations:\n-----\nlevel                         : {level}\n"
    return machine(
        {
            **cards((ARM_AT, BF3)),
            **ARM,
            **asked(bluefield.ASKED, table(values), ARM_AT),
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


def test_a_mode_that_is_set_and_not_yet_in_force_wants_a_power_cycle_only() -> None:
    found = mode(Goal.ARM_DMA, settings(NIC, DPU))
    assert found.verdict is Verdict.FAIL
    assert not any("mlxconfig" in line for line in found.remedy)
    assert "takes effect after a power cycle" in found.why


def test_a_mode_that_the_next_power_cycle_will_take_away_is_warned_about() -> None:
    found = mode(Goal.ARM_DMA, settings(DPU, NIC))
    assert found.verdict is Verdict.WARN
    assert "works now" in found.why
    assert "INTERNAL_CPU_OFFLOAD_ENGINE=0" in found.remedy[0]


def test_a_bluefield_2_with_settings_of_both_modes_is_warned_about() -> None:
    half = settings((1, 0, 1, 1, 1))
    assert mode(Goal.GPUNETIO, half, device=BF2).verdict is Verdict.WARN
    assert mode(Goal.GPUNETIO, half, device=BF3).verdict is Verdict.OK


def test_without_root_the_mode_is_not_told_and_the_command_is() -> None:
    refused = asked(bluefield.ASKED, Reading(said="-E- Failed to open the device", code=3))
    found = mode(Goal.ARM_DMA, refused, {"ask euid": 1000})
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.remedy[0].startswith(f"sudo mlxconfig -d {AT} -e q INTERNAL_CPU_MODEL")
    assert mode(Goal.RDMA, refused, {"ask euid": 1000}).verdict is Verdict.OK


def test_without_mlxconfig_the_way_out_is_mstconfig() -> None:
    found = mode(Goal.ARM_DMA)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "mstflint" in found.remedy[0]
    assert found.remedy[1].startswith("sudo mstconfig")


def test_a_card_that_tells_nothing_of_its_mode_is_not_judged() -> None:
    found = mode(Goal.ARM_DMA, asked(bluefield.ASKED, table({"LINK_TYPE_P1": 2})))
    assert found.verdict is Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("DPU mode", Verdict.OK),
        ("NIC mode", Verdict.FAIL),
        ("Unknown", Verdict.CANNOT_TELL),
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
        (BF2, {"p0": "p0\n", "en3f0pf0sf0": "pf0sf0\n"}, Verdict.CANNOT_TELL),
        (BF2, {"oob_net0": ""}, Verdict.CANNOT_TELL),
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
    assert {one.verdict for one in unsure} == {Verdict.CANNOT_TELL}


@pytest.mark.parametrize("level", ["RESTRICTED", "PRIVILEGED"])
def test_an_arm_side_that_restricts_the_host_says_where_to_type(level: str) -> None:
    query = f"Current device configurations:\n-----\nlevel                         : {level}\n"
    said = {f"run mlxprivhost -d {AT} q": query}
    found = mode(Goal.ARM_DMA, settings(DPU), ARM, said)
    assert found.verdict is Verdict.OK
    assert ("zero trust" in found.why) is (level == "RESTRICTED")


def test_no_card_has_no_mode() -> None:
    assert judge("bluefield-mode", machine(cards()))[0].verdict is Verdict.NOT_APPLICABLE


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
