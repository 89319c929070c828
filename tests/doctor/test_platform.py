# SPDX-License-Identifier: Apache-2.0
"""Machines on which other devices may, or may not, reach GPU memory."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, load
from support.doctor.gpus import ADDRESS, h200, smi, with_gpu
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Goal, Verdict, diagnose
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.gpudirect import Kind, kind
from dgkit.doctor.facts.gpus import gpus
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

SMI, PROBE = "run nvidia-smi -q", "probe cuda"


def asked(**attributes: int) -> dict[str, object]:
    device = {"ordinal": 0, "address": ADDRESS, "attributes": attributes}
    init = {"code": 0, "name": "CUDA_SUCCESS"}
    return {PROBE: {"init": init, "driver": 13000, "devices": [device]}}


def one(on: Machine, goal: Goal = Goal.ARM_DMA) -> Finding:
    (found,) = judge("gpudirect-platform", on, goal=goal)
    return found


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("NVIDIA H200", {}, Kind.BOARD),
        ("NVIDIA RTX A6000", {}, Kind.BOARD),
        ("NVIDIA RTX 6000 Ada Generation", {}, Kind.BOARD),
        ("Quadro RTX 8000", {}, Kind.BOARD),
        ("NVIDIA GeForce RTX 4090", {}, Kind.GEFORCE),
        ("GeForce GTX 1080", {}, Kind.GEFORCE),
        ("NVIDIA GB10", {}, Kind.SPARK),
        ("", {"text /sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n"}, Kind.SPARK),
        ("NVIDIA GH200 480GB", {}, Kind.GRACE),
        ("NVIDIA GB200", {}, Kind.GRACE),
        ("Orin (nvgpu)", {}, Kind.TEGRA),
        ("NVIDIA Thor", {"text /proc/device-tree/model": "NVIDIA Jetson AGX Thor\0"}, Kind.TEGRA),
        ("NVIDIA X", asked(INTEGRATED=1), Kind.TEGRA),
    ],
)
def test_machines_are_told_apart_by_name_attribute_and_firmware(
    name: str, more: dict[str, object], expected: Kind
) -> None:
    on = h200({SMI: smi(name), **more})
    (gpu,) = gpus(on)
    assert kind(on, gpu) is expected


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("NVIDIA H200", Verdict.OK),
        ("NVIDIA A100 80GB PCIe", Verdict.OK),
        ("NVIDIA GH200 480GB", Verdict.OK),
        ("NVIDIA GB10", Verdict.WARN),
        ("NVIDIA GeForce RTX 4090", Verdict.FAIL),
        ("Orin (nvgpu)", Verdict.WARN),
    ],
)
def test_where_documents_rule_gpudirect_out_pinned_memory_is_the_way(
    name: str, verdict: Verdict
) -> None:
    found = one(h200({SMI: smi(name)}))
    assert found.verdict is verdict
    assert found.sources
    assert bool(found.remedy) is (verdict is not Verdict.OK)
    assert verdict is Verdict.OK or "pinned" in found.remedy[0]


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA GeForce RTX 4090"])
def test_gpunetio_is_given_its_own_kind_of_memory(name: str) -> None:
    found = one(h200({SMI: smi(name)}), Goal.GPUNETIO)
    assert found.verdict is Verdict.WARN
    assert "DOCA_GPU_MEM_TYPE_CPU_GPU" in found.remedy[0]


def test_what_cuda_says_counts_more_than_the_name() -> None:
    geforce, board = {SMI: smi("NVIDIA GeForce RTX 4090")}, {SMI: smi("NVIDIA H200")}
    yes = asked(GPU_DIRECT_RDMA_SUPPORTED=0, DMA_BUF_SUPPORTED=1)
    no = asked(GPU_DIRECT_RDMA_SUPPORTED=0, DMA_BUF_SUPPORTED=0)
    assert one(h200({**geforce, **yes})).verdict is Verdict.OK
    assert one(h200({**board, **no})).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("release", "device", "verdict"),
    [
        ("6.8.0-1021-nvidia-64k", "1023", Verdict.WARN),
        ("6.14.0-1007-nvidia-64k", "1023", Verdict.OK),
        ("6.8.0-1021-nvidia-64k", "1021", Verdict.OK),
    ],
)
def test_grace_beside_a_connectx8_needs_the_kernel_that_its_guide_names(
    release: str, device: str, verdict: Verdict
) -> None:
    nic = "0000:03:00.0"
    folder = f"/sys/bus/pci/devices/{nic}"
    on = h200(
        {
            SMI: smi("NVIDIA GB200", addressing="ATS"),
            "ask uname": {**UNAME, "release": release, "machine": "aarch64"},
            "names /sys/bus/pci/devices": (nic, ADDRESS),
            f"link {folder}": f"/sys/devices/pci0000:00/{nic}",
            f"text {folder}/uevent": f"PCI_CLASS=20000\nPCI_ID=15B3:{device}\n",
        }
    )
    assert one(on).verdict is verdict


def test_a_gpu_that_nobody_names_is_not_judged_and_none_is_not_asked() -> None:
    assert one(with_gpu()).verdict is Verdict.UNKNOWN
    assert one(machine({})).verdict is Verdict.NOT_APPLICABLE


def test_what_dgkits_own_gpu_memory_is_made_with_is_looked_for() -> None:
    direct = {"GPU_DIRECT_RDMA_SUPPORTED": 1, "DMA_BUF_SUPPORTED": 1}
    no_fd = one(h200(asked(**direct, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED=0)))
    assert no_fd.verdict is Verdict.WARN
    assert "pinned" in no_fd.remedy[0]
    no_virtual = one(h200(asked(**direct, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED=0)))
    assert no_virtual.verdict is Verdict.WARN
    assert "cupy" in no_virtual.remedy[0]
    assert one(h200(asked(**direct))).verdict is Verdict.OK


def test_a_vgpu_is_judged_by_what_cuda_says_alone() -> None:
    guest = {SMI: smi("NVIDIA H100-40C", virtualization="VGPU")}
    assert one(h200(guest)).verdict is Verdict.UNKNOWN
    assert one(h200({**guest, **asked(DMA_BUF_SUPPORTED=1)})).verdict is Verdict.OK
    assert one(h200({**guest, **asked(DMA_BUF_SUPPORTED=0)})).verdict is Verdict.FAIL


def test_other_gpus_and_unread_devices_are_not_a_laptop_that_is_fine() -> None:
    two = diagnose([load(FOLDER / "programs" / "rocm-787-two.txt").machine()])
    assert two.exit_code == 6
    assert two.of("other-gpus")[0].found == "2 of AMD"
    unread = diagnose([machine({"names /sys/bus/pci/devices": Reading(fault="denied", why="no")})])
    assert unread.exit_code == 6
    assert unread.of("other-gpus")[0].found == "PCI devices not read"
    assert "not read" in unread.chosen
