# SPDX-License-Identifier: Apache-2.0
"""Goal that is chosen without --goal: each rule of the table, its readings, and its documents."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from doctor import snapshots
from support.doctor import pci
from support.doctor.machines import machine

import dgkit.doctor
from dgkit.cli.doctor_command import doctor as command
from dgkit.doctor import diagnose
from dgkit.doctor.automatic_goal import RULES, Signs, choose
from dgkit.doctor.collect.reader import Reader, Reading
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine

BLUEFIELD = {"card": "BlueField-3", "nic": True}
GPU, CARD = pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0")
NIC = pci.nic("pci0000:b0/0000:b4:00.0")
README = Path(dgkit.doctor.__file__).with_name("README.md")
DOCA = {"text /opt/mellanox/doca/applications/VERSION": "3.2.1025"}
RSHIM = {"names /dev": ["rshim0"], "text /dev/rshim0/misc": ""}
GEFORCE = {
    "text /proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: \t NVIDIA GeForce RTX 4090\n"
}


@pytest.mark.parametrize(
    ("shown", "goal", "why"),
    [
        ({"arm": True, "host": False}, Goal.ARM_DMA, "this is the Arm side"),
        ({"arm": True, "host": True}, Goal.ARM_DMA, "these are a host and the Arm side"),
        ({**BLUEFIELD, "reachable": True, "software": "DOCA"}, Goal.ARM_DMA, "and DOCA"),
        ({**BLUEFIELD, "reachable": True, "software": "rshim"}, Goal.ARM_DMA, "and rshim"),
        ({**BLUEFIELD, "reachable": True}, Goal.RDMA, "neither DOCA nor rshim"),
        (
            {**BLUEFIELD, "reachable": True, "software": "DOCA", "nic_mode": True},
            Goal.RDMA,
            "in NIC mode",
        ),
        ({"nic": True, "reachable": True}, Goal.RDMA, "a NIC, and no BlueField"),
        ({**BLUEFIELD, "software": "DOCA"}, Goal.GPU, "a GeForce"),
        ({"gpus": 2, "nic": True}, Goal.GPU, "several GPUs, all GeForce"),
        ({"gpus": 2, "reachable": True}, Goal.P2P, "no NIC with RDMA"),
        ({"reachable": True}, Goal.GPU, "no NIC with RDMA"),
        ({}, Goal.GPU, "the GPU is a GeForce"),
        ({"arm": True, "host": True, "gpus": 0}, Goal.HOST_DMA, "a host without a GPU and the Arm"),
        ({"arm": True, "host": False, "gpus": 0}, Goal.ARM_DMA, "this is the Arm side"),
        ({**BLUEFIELD, "gpus": 0, "software": "DOCA"}, Goal.HOST_DMA, "and DOCA, and no GPU"),
        ({**BLUEFIELD, "gpus": 0, "software": "rshim"}, Goal.LAPTOP, "without DOCA, and no GPU"),
        ({**BLUEFIELD, "gpus": 0}, Goal.LAPTOP, "BlueField-3 without DOCA, and no GPU"),
        (
            {**BLUEFIELD, "gpus": 0, "software": "DOCA", "nic_mode": True},
            Goal.LAPTOP,
            "BlueField-3 in NIC mode, and no GPU",
        ),
        ({"gpus": 0}, Goal.LAPTOP, "there is no NVIDIA GPU"),
    ],
)
def test_the_first_rule_that_holds_gives_goal_and_reason(
    shown: dict[str, object], goal: Goal, why: str
) -> None:
    found, reason = choose(Signs(**{"gpus": 1, **shown}))  # type: ignore[arg-type]
    assert found is goal
    assert why in reason


@pytest.mark.parametrize(
    ("readings", "devices", "goal"),
    [
        (DOCA, [GPU, CARD], Goal.ARM_DMA),
        (RSHIM, [GPU, CARD], Goal.ARM_DMA),
        ({}, [GPU, CARD], Goal.RDMA),
        (GEFORCE, [GPU], Goal.GPU),
        ({**GEFORCE, **DOCA}, [GPU, CARD], Goal.GPU),
        (GEFORCE, [GPU, NIC], Goal.GPU),
        ({}, [GPU, NIC], Goal.RDMA),
        (DOCA, [CARD], Goal.HOST_DMA),
        (RSHIM, [CARD], Goal.LAPTOP),
        ({}, [CARD], Goal.LAPTOP),
    ],
)
def test_the_readings_of_a_machine_decide(
    readings: dict[str, object], devices: list[pci.Dev], goal: Goal
) -> None:
    assert diagnose([machine({**pci.sysfs(devices), **readings})]).goal is goal


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        *(("bf2-dpu-mode", Goal.ARM_DMA), ("bf3-nic-mode", Goal.RDMA), ("pix", Goal.RDMA)),
        *(("h200", Goal.GPU), ("h200-x2", Goal.P2P), ("laptop", Goal.LAPTOP)),
        *(("dgx-spark", Goal.RDMA), ("bf3-arm", Goal.ARM_DMA)),
    ],
)
def test_whole_machines_are_judged_for_what_they_show(name: str, goal: Goal) -> None:
    assert diagnose([snapshots.machine(name)]).goal is goal


def test_a_host_without_a_gpu_is_judged_with_its_dpu_for_host_memory() -> None:
    host = machine({**pci.sysfs([CARD]), **DOCA})
    both = diagnose([host, snapshots.machine("bf3-arm")])
    assert both.goal is Goal.HOST_DMA
    assert {path.name for path in both.data_paths if path.serves} == {"doca-host-memory"}
    assert not [one for one in both.findings if one.check in ("gpu-present", "cuda-driver")]


class SlowSettings(Reader):
    """A machine whose mlxconfig does not answer before the reader's end."""

    def __init__(self, source: Reader) -> None:
        self._source = source

    def read(self, key: str) -> Reading:
        if not key.startswith(("run mlxconfig", "run mstconfig")):
            return self._source.read(key)
        time.sleep(0.5)
        return Reading(fault="late", why="no answer")


def test_a_card_whose_mode_is_late_does_not_hold_up_the_choice() -> None:
    slow = Machine(SlowSettings(snapshots.machine("bf3-nic-mode").read))
    found = diagnose([slow], limit_s=1.0)
    assert found.goal is Goal.ARM_DMA
    assert "DOCA" in found.chosen


def _table(text: str) -> str:
    return " ".join(re.sub(r"[|`]", " ", text).split())


def test_help_and_readme_have_each_rule_in_its_order() -> None:
    texts = (CliRunner().invoke(command, ["--help"]).output, README.read_text("utf-8"))
    for text in map(_table, texts):
        places = [text.index(f"{rule.goal} {rule.when}") for rule in RULES]
        assert places == sorted(places)


def test_the_other_goals_are_offered_by_name_unless_one_was_given() -> None:
    auto, given = (diagnose([snapshots.machine("pix")], goal=goal) for goal in (None, Goal.RDMA))
    others = "arm-dma, host-dma, gpunetio, p2p, gpu, laptop"
    assert f"Other goals: --goal {others}." in " ".join(str(auto).split())
    assert f"other goals: {others}" in auto._repr_html_()
    assert "ther goals" not in str(given) + given._repr_html_()
