# SPDX-License-Identifier: Apache-2.0
"""Firmware of network cards, and what it is compared with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.facts import firmware
from dgkit.doctor.facts.versions import version
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal

PCI = "/sys/bus/pci/devices"
AT = "0000:9f:00.0"
BF2, BF3, CX5, CX6DX, CX7 = "A2D6", "A2DC", "1017", "101D", "1021"
VERSION = "text /opt/mellanox/doca/applications/VERSION"
FLINT = """Image type:            FS4
FW Version:            32.41.1000
FW Release Date:       28.4.2024
Product Version:       32.41.1000
PSID:                  MT_0000000884
"""
ETHTOOL = "driver: mlx5_core\nversion: 6.8.0\nfirmware-version: 24.33.1048 (MT_0000000540)\n"


def card(device: str = BF3, running: str = "", doca: str = "") -> dict[str, object]:
    """Return a card whose RDMA device has the firmware version, on a machine with DOCA."""
    said: dict[str, object] = {
        f"names {PCI}": [AT],
        f"link {PCI}/{AT}": f"/sys/devices/pci0000:9e/{AT}",
        f"text {PCI}/{AT}/uevent": f"PCI_CLASS=20000\nPCI_ID=15B3:{device}\n",
    }
    if running:
        said["names /sys/class/infiniband"] = ["mlx5_0"]
        said["link /sys/class/infiniband/mlx5_0/device"] = f"/sys/devices/pci0000:9e/{AT}"
        said["text /sys/class/infiniband/mlx5_0/fw_ver"] = f"{running}\n"
    if doca:
        said[VERSION] = f"{doca}\n"
    return said


def judged(goal: Goal, readings: dict[str, object]) -> Finding:
    (found,) = judge("firmware-version", machine(readings), goal=goal)
    return found


@pytest.mark.parametrize(
    ("goal", "device", "running", "doca", "verdict"),
    [
        (Goal.ARM_DMA, BF2, "24.33.1048", "", Verdict.OK),
        (Goal.ARM_DMA, BF2, "24.33.0100", "", Verdict.OK),
        (Goal.ARM_DMA, BF2, "24.32.2004", "", Verdict.FAIL),
        (Goal.ARM_DMA, BF3, "32.41.1000", "2.9.1008", Verdict.OK),
        (Goal.ARM_DMA, BF3, "32.40.1000", "2.9.1008", Verdict.WARN),
        (Goal.ARM_DMA, BF3, "32.47.1026", "2.9.1008", Verdict.OK),
        (Goal.ARM_DMA, BF3, "32.39.1002", "2.5.0108", Verdict.OK),  # that DOCA is in no table
        (Goal.GPUNETIO, CX6DX, "22.47.1026", "3.2.1025", Verdict.OK),
        (Goal.GPUNETIO, CX5, "16.35.4030", "3.2.1025", Verdict.WARN),
        (Goal.RDMA, CX5, "16.35.4030", "3.2.1025", Verdict.OK),  # its series ended there
        (Goal.RDMA, CX7, "28.39.1002", "3.2.1025", Verdict.WARN),
        (Goal.ARM_DMA, CX7, "28.39.1002", "3.2.1025", Verdict.NOT_APPLICABLE),
    ],
)
def test_firmware_is_judged_by_the_goal_and_by_the_doca_beside_it(
    goal: Goal, device: str, running: str, doca: str, verdict: Verdict
) -> None:
    found = judged(goal, card(device, running, doca))
    assert found.verdict is verdict
    if verdict in (Verdict.WARN, Verdict.FAIL):
        assert found.remedy
        assert found.needed


def test_beside_a_card_for_gpunetio_an_older_one_is_not_judged() -> None:
    other = "0000:b1:00.0"
    there = {**card(CX7, "28.47.1026"), f"names {PCI}": [AT, other]}
    there |= {
        f"link {PCI}/{other}": f"/sys/devices/pci0000:b0/{other}",
        f"text {PCI}/{other}/uevent": f"PCI_CLASS=20000\nPCI_ID=15B3:{CX5}\n",
    }
    assert judged(Goal.GPUNETIO, there).verdict is Verdict.OK
    assert len(judge("firmware-version", machine(there), goal=Goal.RDMA)) == 2


def test_new_firmware_wants_an_orderly_power_cycle() -> None:
    found = judged(Goal.ARM_DMA, card(BF3, "32.40.1000", "2.9.1008"))
    assert any(line.startswith("sudo mstfwreset") for line in found.remedy)
    nic = judged(Goal.RDMA, card(CX7, "28.39.1002", "3.2.1025"))
    assert not any("fwreset" in line for line in nic.remedy)
    assert not any(line.startswith("sudo ipmitool") for line in (*found.remedy, *nic.remedy))


def test_the_sample_guide_and_doca_are_said_to_disagree() -> None:
    assert "24.33.0100" in judged(Goal.ARM_DMA, card(BF2, "24.43.1014", "2.9.1008")).disagree
    assert judged(Goal.RDMA, card(BF2, "24.43.1014", "2.9.1008")).disagree == ""


def test_firmware_that_nobody_tells_is_not_judged() -> None:
    found = judged(Goal.ARM_DMA, card())
    assert found.verdict is Verdict.UNKNOWN
    assert found.remedy == ("sudo apt install mstflint", f"sudo mstflint -d {AT} q")
    assert "flint" in found.why


def test_a_card_without_an_rdma_device_is_asked_by_its_network_driver_then_by_flint() -> None:
    by_net = {**card(), f"names {PCI}/{AT}/net": ["ens6f0np0"], "run ethtool -i ens6f0np0": ETHTOOL}
    (found,) = machine(by_net).know(firmware.adapters)
    assert (found.firmware, found.board) == (version(24, 33, 1048), "MT_0000000540")
    by_flint = {**card(), f"run flint -d {AT} q": FLINT}
    (found,) = machine(by_flint).know(firmware.adapters)
    assert (found.firmware, found.board) == (version(32, 41, 1000), "MT_0000000884")


def test_ethtool_of_a_card_without_firmware_tells_none() -> None:
    assert firmware.ethtool("driver: veth\nfirmware-version: \nbus-info:\n") == (None, "")


@given(st.text() | st.lists(st.sampled_from((FLINT + ETHTOOL).split())).map(" ".join))
def test_no_text_makes_the_parsers_raise(text: str) -> None:
    for parse in (firmware.ethtool, firmware.flint):
        found, board = parse(text)
        assert found is None or found.parts
        assert isinstance(board, str)
