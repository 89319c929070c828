# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of NUMA nodes and CPUs."""

from __future__ import annotations

import pytest
from support.doctor.machines import judge, machine
from support.doctor.pci import BARE, dpu, gpu, sysfs

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.machine import Machine

NODES = {
    "text /sys/devices/system/node/node0/cpulist": "0-3\n",
    "text /sys/devices/system/node/node1/cpulist": "4-7\n",
}


def box(
    gpu_node: int, dpu_node: int, cpus: object = (0, 1), nodes: str = "0-1", **more: object
) -> Machine:
    devices = [
        gpu("pci0000:16/0000:16:01.0/0000:17:00.0", gpu_node),
        dpu("pci0000:80/0000:80:01.0/0000:81:00.0", dpu_node),
    ]
    asked = list(cpus) if isinstance(cpus, tuple) else cpus
    return machine({**BARE, **sysfs(devices, nodes=nodes), **NODES, "ask cpus": asked, **more})


def test_all_on_one_node_is_fine() -> None:
    found = judge("numa", box(0, 0))
    assert [one.verdict for one in found] == [Verdict.OK, Verdict.OK]
    assert {one.found for one in found} == {"both on node 0", "all are near"}


def test_two_nodes_between_gpu_and_dpu_are_a_warning() -> None:
    found = judge("numa", box(0, 1))[0]
    assert found.verdict is Verdict.WARN
    assert found.found == "GPU on node 0, BlueField-3 on node 1"


def test_cpus_that_are_all_far_are_a_warning_with_the_command() -> None:
    found = judge("numa", box(1, 1, (0, 1)))[0]
    assert (found.verdict, found.subject) == (Verdict.WARN, "CPUs of this process")
    assert found.remedy == ("numactl --cpunodebind=1 --membind=1 dgkit lab",)


def test_cpus_of_which_some_are_near_are_fine() -> None:
    found = judge("numa", box(1, 1, (3, 4, 5)))
    assert "2 of 3 are near" in {one.found for one in found}
    assert {one.verdict for one in found} == {Verdict.OK}


def test_one_node_is_fine_whatever_the_devices_say() -> None:
    (found,) = judge("numa", box(-1, -1, nodes="0"))
    assert (found.verdict, found.found) == (Verdict.OK, "one NUMA node")


def test_devices_without_a_node_are_not_judged() -> None:
    found = judge("numa", box(-1, -1))
    assert [one.verdict for one in found] == [Verdict.UNKNOWN, Verdict.UNKNOWN]


@pytest.mark.parametrize("asked", [Reading(fault="unrecorded", why="not looked at"), [], "odd"])
def test_without_the_cpus_of_the_process_they_are_not_compared(asked: object) -> None:
    found = judge("numa", box(0, 0, asked))
    assert {one.subject: one.verdict for one in found}["CPUs of this process"] is (Verdict.UNKNOWN)
