# SPDX-License-Identifier: Apache-2.0
"""GPUs among themselves: what the driver allows each pair, MIG, and the fabric."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, load
from support.doctor.gpus import h200
from support.doctor.machines import judge

from dgkit.doctor import Verdict
from dgkit.doctor.facts.nvidia_topo import parse_peers
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal

MATRIX = "\x1b[4m\tGPU0\tGPU1\x1b[0m\n GPU0\tX\t{a}\n GPU1\t{a}\tX\n\nLegend:\n\n  X = Self\n"


def two_gpus(cell: str, name: str = "cuda-samples-284-l4") -> Finding:
    made = load(next(FOLDER.glob(f"*/{name}.txt")))
    made.sections["run nvidia-smi topo -p2p r"] = MATRIX.format(a=cell)  # type: ignore[index]
    (found,) = judge("gpu-peers", made.machine(), goal=Goal.P2P)
    return found


def test_the_matrix_is_read_with_and_without_escapes() -> None:
    pairs = {("GPU0", "GPU1"): "CNS", ("GPU1", "GPU0"): "CNS"}
    assert parse_peers(MATRIX.format(a="CNS")) == pairs
    assert parse_peers(" GPU0 GPU1\n GPU0 X OK\n GPU1 OK X\n")["GPU0", "GPU1"] == "OK"
    assert parse_peers("nvidia-smi: invalid option\n") == {}


_ALARMS = (Verdict.WARN, Verdict.FAIL)


@pytest.mark.parametrize("cell", ["CNS", "GNS", "TNS", "DR", "NS"])
def test_what_the_driver_refuses_fails_with_the_reason(cell: str) -> None:
    found = two_gpus(cell)
    assert found.verdict is Verdict.FAIL
    assert found.found.startswith(f"{cell}: ")
    assert "nvidia-smi topo -p2p r" in found.remedy


@pytest.mark.parametrize("cell", ["OK", "U", "N/A"])
def test_what_it_allows_or_does_not_say_is_no_failure(cell: str) -> None:
    assert two_gpus(cell).verdict is Verdict.OK


def test_only_a_guest_is_sent_to_its_hypervisor() -> None:
    assert not any("x-nv-gpudirect-clique" in line for line in two_gpus("CNS").remedy)
    assert "x-nv-gpudirect-clique" in two_gpus("CNS", "nccl-175-vm").remedy[0]


@pytest.mark.parametrize(("context", "verdict"), [(0, Verdict.WARN), (802, Verdict.FAIL)])
def test_a_fabric_that_is_not_complete_blocks_what_cuda_cannot_start(
    context: int, verdict: Verdict
) -> None:
    log = h200().read.run("nvidia-smi", "-q").text + "    Fabric\n        State : In Progress\n"
    devices = [{"address": "0000:ca:00.0", "code": context, "name": "", "why": ""}]
    made = h200({"run nvidia-smi -q": log, "probe context": {"why": "", "devices": devices}})
    (found,) = judge("nvlink-fabric", made, goal=Goal.P2P)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("goal", "xid", "verdict"),
    [
        (Goal.P2P, 145, Verdict.FAIL),
        (Goal.GPU, 145, Verdict.WARN),
        (Goal.P2P, 31, Verdict.NOT_APPLICABLE),  # a program's page fault: no error of the machine
    ],
)
def test_an_error_of_nvlink_in_the_kernels_log_is_named(
    goal: Goal, xid: int, verdict: Verdict
) -> None:
    made = h200({"run dmesg": f"[1.0] NVRM: Xid (PCI:0000:ca:00): {xid}, RLW_REMAP, Nonfatal"})
    (found,) = judge("nvlink-fabric", made, goal=goal)
    assert (found.verdict, str(xid) in found.found) == (verdict, verdict in _ALARMS)
