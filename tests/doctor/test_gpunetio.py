# SPDX-License-Identifier: Apache-2.0
"""What each part of GPUNetIO takes."""

from __future__ import annotations

import pytest
from support.doca.readings import LATE, LIB, PARTS, installed, one
from support.doctor.bluefield import AT, BF3, asked, cards, table

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import bluefield
from dgkit.doctor.goals import Goal

ROOT_USER: dict[str, object] = {"ask euid": 0}
CUDA_13: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 13.0, V13.0.8"}
CUDA_12_8: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 12.8, V12"}
CUDA_11_8: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 11.8, V11"}
CUDA_12_2: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 12.2, V12"}


@pytest.mark.parametrize(
    ("part", "toolkit", "verdict"),
    [
        ("ethernet", CUDA_13, Verdict.OK),
        ("ethernet", CUDA_12_8, Verdict.OK),
        ("ethernet", CUDA_12_2, Verdict.OK),  # NVIDIA recommends 12.6, and programs run with 12
        ("ethernet", CUDA_11_8, Verdict.FAIL),
        ("verbs", CUDA_12_8, Verdict.OK),
        ("rdma", CUDA_13, Verdict.OK),
        ("rdma", CUDA_12_8, Verdict.FAIL),
        ("dma", CUDA_13, Verdict.OK),
        ("dma", CUDA_12_8, Verdict.FAIL),
        ("dma", {}, Verdict.WARN),
        ("dma", {"run nvcc --version": LATE}, Verdict.UNKNOWN),
    ],
)
def test_parts_in_the_static_library_need_cuda_13_and_parts_in_headers_do_not(
    part: str, toolkit: dict[str, object], verdict: Verdict
) -> None:
    found = one(f"gpunetio-{part}", installed(), ROOT_USER, toolkit, goal=Goal.GPUNETIO)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("part", "lacks"),
    [
        ("ethernet", "eth"),
        ("ethernet", "flow"),
        ("rdma", "rdma"),
        ("verbs", "verbs"),
        ("dma", "dma"),
        ("dma", "gpunetio"),
    ],
)
def test_each_part_needs_its_libraries(part: str, lacks: str) -> None:
    parts = tuple(name for name in PARTS if name != lacks)
    there = installed(parts=parts)
    found = one(f"gpunetio-{part}", there, ROOT_USER, CUDA_13, goal=Goal.GPUNETIO)
    assert (found.verdict, found.found) == (Verdict.FAIL, f"no doca-{lacks}")
    assert "doca-sdk-gpunetio" in found.remedy[-1]


def test_without_the_static_library_two_parts_are_missing() -> None:
    there = {**installed(), f"names {LIB}": []}
    for part, verdict in (("dma", Verdict.FAIL), ("rdma", Verdict.FAIL), ("verbs", Verdict.OK)):
        found = one(f"gpunetio-{part}", there, ROOT_USER, CUDA_13, goal=Goal.GPUNETIO)
        assert found.verdict is verdict


def test_that_programs_of_gpunetio_ethernet_need_root_is_no_fault_of_the_machine() -> None:
    for user in (0, 1000):
        who: dict[str, object] = {"ask euid": user}
        found = one("gpunetio-ethernet", installed(), who, CUDA_13, goal=Goal.GPUNETIO)
        assert found.verdict is Verdict.OK
        assert "root" in found.why
    verbs = one("gpunetio-verbs", installed(), CUDA_13, goal=Goal.GPUNETIO)
    assert "root" not in verbs.why


@pytest.mark.parametrize(
    ("types", "verdict"),
    [
        ({"LINK_TYPE_P1": 1, "LINK_TYPE_P2": 1}, Verdict.FAIL),
        ({"LINK_TYPE_P1": 1, "LINK_TYPE_P2": 2}, Verdict.OK),
        ({"LINK_TYPE_P1": 2}, Verdict.OK),
        ({}, Verdict.OK),
    ],
)
def test_only_gpunetio_ethernet_is_blocked_by_infiniband(
    types: dict[str, int], verdict: Verdict
) -> None:
    card = {
        **cards((AT, BF3)),
        **asked(bluefield.QUERIED, table({"INTERNAL_CPU_MODEL": 1} | types)),
    }
    there = {**card, **installed(), **CUDA_13}
    found = one("gpunetio-ethernet", there, goal=Goal.GPUNETIO)
    assert found.verdict is verdict
    if verdict is Verdict.FAIL:
        assert found.remedy[0].endswith("set LINK_TYPE_P1=2 LINK_TYPE_P2=2")
    for check in ("gpunetio-rdma", "gpunetio-verbs", "gpunetio-dma", "bluefield-link"):
        assert one(check, there, goal=Goal.GPUNETIO).verdict is Verdict.OK


def test_without_doca_no_part_is_there_and_an_unread_doca_is_not_judged() -> None:
    for part in ("ethernet", "rdma", "verbs", "dma"):
        assert one(f"gpunetio-{part}", goal=Goal.GPUNETIO).found == "no DOCA"
        denied = {f"names {LIB}": Reading(fault="denied", why="no")}
        found = one(f"gpunetio-{part}", denied, goal=Goal.GPUNETIO)
        assert found.verdict is Verdict.UNKNOWN
