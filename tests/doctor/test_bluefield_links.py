# SPDX-License-Identifier: Apache-2.0
"""The ways to a BlueField: its links, its representors, and the network over rshim."""

from __future__ import annotations

import json

import pytest
from doctor.published import FOLDER, load
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.bluefield import ARM, AT, BF2, BF3, CX7, asked, cards, nets, table
from support.doctor.machines import judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import bluefield
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal


def link(device: str, answer: object) -> Finding:
    names = bluefield.QUERIED if device in (BF2, BF3) else bluefield.LINKS
    here = machine({**cards((AT, device)), **asked(names, answer)})
    (found,) = judge("bluefield-link", here, goal=Goal.GPUNETIO)
    return found


ETH = {"LINK_TYPE_P1": 2, "KEEP_ETH_LINK_UP_P1": 1, "KEEP_IB_LINK_UP_P1": 0}


@pytest.mark.parametrize(
    ("device", "values", "verdict"),
    [
        (BF3, {"LINK_TYPE_P1": 2}, Verdict.OK),
        (BF3, {"LINK_TYPE_P1": 1}, Verdict.OK),  # gpunetio-ethernet alone wants Ethernet
        (CX7, ETH, Verdict.OK),
        (CX7, ETH | {"KEEP_ETH_LINK_UP_P1": 0}, Verdict.WARN),
        (CX7, ETH | {"KEEP_IB_LINK_UP_P1": 1}, Verdict.WARN),
        (CX7, {"KEEP_ETH_LINK_UP_P1": 1}, Verdict.OK),  # Ethernet alone: no link type to set
    ],
)
def test_the_links_are_as_the_gpunetio_guide_asks(
    device: str, values: dict[str, int], verdict: Verdict
) -> None:
    assert link(device, table(values)).verdict is verdict


def test_the_keeping_of_links_is_set_by_the_guides_line() -> None:
    found = link(CX7, table(ETH | {"KEEP_ETH_LINK_UP_P1": 0}))
    assert "KEEP_ETH_LINK_UP_P1=1 KEEP_IB_LINK_UP_P1=0" in found.remedy[0]


def test_accurate_send_scheduling_is_told_of_and_asks_for_nothing() -> None:
    off = link(BF3, table({"LINK_TYPE_P1": 2, "ACCURATE_TX_SCHEDULER": 0}))
    assert "ACCURATE_TX_SCHEDULER=1" in off.why
    both = {"ACCURATE_TX_SCHEDULER": 1, "REAL_TIME_CLOCK_ENABLE": 1}
    assert link(BF3, table({"LINK_TYPE_P1": 2, **both})).why == ""


def test_the_type_of_a_link_that_only_root_may_query_is_known_from_its_active_port() -> None:
    here = load(FOLDER / "communication" / "deepep-139-noregkey.txt").machine()
    (found,) = judge("bluefield-link", here, goal=Goal.GPUNETIO)
    assert (found.verdict, found.found) == (Verdict.OK, "Ethernet")
    assert "root" in found.why


def test_links_that_are_not_read_share_one_finding() -> None:
    here = machine(cards((AT, CX7), ("0000:b1:00.0", CX7)))
    (found,) = judge("bluefield-link", here, goal=Goal.GPUNETIO)
    assert found.verdict is Verdict.UNKNOWN
    assert found.subject == f"{AT}, 0000:b1:00.0"
    assert found.needed
    assert not any("LINK_TYPE" in line for line in found.remedy), "some cards have no such setting"
    none = judge("bluefield-link", machine(cards()), goal=Goal.GPUNETIO)
    assert none[0].verdict is Verdict.NOT_APPLICABLE


def test_the_link_of_a_bluefield_in_dpu_mode_does_not_count_beside_a_nic() -> None:
    dpu = asked(bluefield.QUERIED, table({"LINK_TYPE_P1": 1, "INTERNAL_CPU_OFFLOAD_ENGINE": 0}))
    other = "0000:b1:00.0"
    here = {**cards((AT, BF3), (other, CX7)), **dpu, **asked(bluefield.LINKS, table(ETH), other)}
    (found,) = judge("bluefield-link", machine(here), goal=Goal.GPUNETIO)
    assert other in found.subject


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        (nets(p0="p0\n", pf0hpf="c1pf0\n"), Verdict.OK),
        (nets(p0="p0\n", p1="p1\n"), Verdict.WARN),
        (nets(oob_net0=""), Verdict.WARN),
        ({"names /sys/class/net": Reading(fault="denied", why="no")}, Verdict.UNKNOWN),
    ],
)
def test_the_arm_side_needs_a_representor_of_the_host(
    readings: dict[str, object], verdict: Verdict
) -> None:
    (found,) = judge("bluefield-representors", machine({**ARM, **readings}))
    assert found.verdict is verdict


def addr(**nets: str) -> str:
    return json.dumps(
        [
            {
                "ifname": net,
                "addr_info": [{"family": "inet", "local": local, "prefixlen": 30}] if local else [],
            }
            for net, local in nets.items()
        ]
    )


TMFIFO: dict[str, object] = {"names /sys/class/net": ["lo", "tmfifo_net0"]}
IP = "run ip -j addr show"


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({**TMFIFO, IP: addr(tmfifo_net0="192.168.100.1")}, Verdict.OK),
        ({**TMFIFO, IP: addr(tmfifo_net0="")}, Verdict.WARN),
        ({**TMFIFO, IP: addr(lo="127.0.0.1")}, Verdict.WARN),
        ({"names /sys/class/net": ["lo"]}, Verdict.WARN),
        (TMFIFO, Verdict.UNKNOWN),
        ({**TMFIFO, IP: "Option -j is unknown"}, Verdict.UNKNOWN),
        ({"names /sys/class/net": Reading(fault="denied", why="no")}, Verdict.UNKNOWN),
    ],
)
def test_host_and_arm_cores_need_an_address_over_rshim(
    readings: dict[str, object], verdict: Verdict
) -> None:
    host, arm = ({**cards((AT, BF3)), **readings}, {**ARM, **readings})
    for here, usual in ((machine(host), "100.1/30"), (machine(arm), "100.2/30")):
        (found,) = judge("bluefield-tmfifo", here)
        assert found.verdict is verdict
        if verdict is Verdict.WARN and found.needed != "tmfifo_net0":
            assert usual in found.remedy[0]


def test_a_container_is_not_told_to_start_services() -> None:
    here = {**cards((AT, BF3)), "names /sys/class/net": ["lo"], "text /.dockerenv": ""}
    (found,) = judge("bluefield-tmfifo", machine(here))
    assert [line[:1] for line in found.remedy] == ["#"]


def test_where_rshim_runs_without_a_device_it_is_not_installed_again() -> None:
    here = {**cards((AT, BF3)), "names /sys/class/net": ["lo"]}
    stopped, runs = (
        judge("bluefield-tmfifo", machine({**here, "run systemctl is-active rshim": state}))[0]
        for state in ("inactive\n", "active\n")
    )
    assert stopped.remedy[0] == "sudo apt install rshim"
    assert "has no device" in runs.why
    assert "install" not in " ".join(runs.remedy)
    assert "journalctl -u rshim" in runs.remedy[0]


def test_an_rshim_that_has_the_card_is_restarted() -> None:
    here = {**cards((AT, BF3)), "names /sys/class/net": ["lo"], "names /dev": ["rshim0"]}
    (found,) = judge("bluefield-tmfifo", machine(here))
    assert found.remedy == ("sudo systemctl restart rshim",)


def test_a_host_without_a_card_needs_no_network_to_one() -> None:
    assert judge("bluefield-tmfifo", machine(cards()))[0].verdict is Verdict.NOT_APPLICABLE


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_of_ip_makes_it_raise(text: str) -> None:
    found = bluefield.addresses(text)
    assert found is None or isinstance(found, dict)
