# SPDX-License-Identifier: Apache-2.0
"""Advice on other programs: said where its condition holds, and never a verdict."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, Published, load
from doctor.snapshots import machine
from support.doctor.gpus import MODULES, h200
from support.doctor.machines import judge

from dgkit.doctor import Verdict
from dgkit.doctor.finding import Finding
from dgkit.doctor.format.notebook import text
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import diagnose


def published(path: str) -> Published:
    return load(FOLDER / f"{path}.txt")


def advice(made: Machine, goal: Goal) -> dict[str, Finding]:
    found = judge("other-programs", made, goal=goal)
    assert {one.verdict for one in found} == {Verdict.NOT_APPLICABLE}
    return {one.subject: one for one in found}


@pytest.mark.parametrize(
    ("path", "goal", "subject"),
    [
        ("nccl/nccl-1676-dgx", Goal.RDMA, "NCCL up to 2.22.3, NVSHMEM's IBRC"),
        ("communication/deepep-55-el9", Goal.GPUNETIO, "NVSHMEM"),
        ("nccl/nccl-1674-flat-tree", Goal.RDMA, "NCCL"),
        ("nccl/nccl-451-bond", Goal.RDMA, "bonded ports (mlx5_bond_0)"),
        ("communication/nixl-1954-bond", Goal.GPUNETIO, "bonded ports (mlx5_bond_0)"),
        ("nccl/nccl-1716-instances", Goal.RDMA, "MIG"),
        ("programs/sbc-reviews-92-gb10", Goal.RDMA, "NCCL and UCX on GB10"),
        ("programs/sglang-12533", Goal.GPUNETIO, "DEVX in a container"),
        ("communication/ucx-11048-node", Goal.RDMA, "NCCL"),
    ],
)
def test_the_condition_is_said_where_it_holds(path: str, goal: Goal, subject: str) -> None:
    assert subject in advice(published(path).machine(), goal)


def test_doca_of_a_bond_may_miss_its_address_which_leads_the_notes_of_the_page() -> None:
    page = text(diagnose([published("communication/nixl-1954-bond").machine()], goal=Goal.GPUNETIO))
    first = page[page.index("Note  ") :]
    assert first.startswith("Note  bonded ports (mlx5_bond_0): DOCA may miss the address.")
    assert "sockaddr_in" in first


def test_a_bond_without_doca_is_only_not_judged() -> None:
    found = advice(published("nccl/nccl-451-bond").machine(), Goal.RDMA)
    assert found["bonded ports (mlx5_bond_0)"].found == "not judged"


def test_nccl_takes_a_near_nic_by_itself_and_a_far_one_when_told() -> None:
    assert "NCCL" not in advice(machine("pix"), Goal.RDMA)
    assert "NCCL_NET_GDR_LEVEL=PHB" in advice(machine("phb"), Goal.RDMA)["NCCL"].why
    assert "NCCL_NET_GDR_LEVEL" not in str(advice(machine("dgx-spark"), Goal.RDMA))  # no GPUDirect
    assert "NCCL_NET_GDR_LEVEL=SYS" in advice(machine("sys"), Goal.RDMA)["NCCL"].why


def test_where_the_folder_of_peers_is_nothing_is_missing() -> None:
    loaded = {"text /proc/modules": f"{MODULES}nvidia_peermem 16384 0 - Live 0x0 (OE)\n"}
    with_folder = {**loaded, "names /sys/kernel/mm/memory_peers": ["nv_mem"]}
    assert any(name.startswith("NCCL up to") for name in advice(h200(loaded), Goal.RDMA))
    assert not any(name.startswith("NCCL up to") for name in advice(h200(with_folder), Goal.RDMA))


def test_advice_changes_no_verdict_and_stands_at_the_end_of_the_page() -> None:
    made = published("nccl/nccl-1676-dgx").machine()
    found = diagnose([made], goal=Goal.RDMA)
    assert found.exit_code == 0
    page = text(found)
    assert "Note  NCCL up to 2.22.3" in page
    assert page.index("Note  NCCL") > page.index("Data paths")
