# SPDX-License-Identifier: Apache-2.0
"""Switches of a system that decide whether a device is there, each as a reading."""

from __future__ import annotations

from typing import Any

from doctor.published import FOLDER, Published, load

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.facts.nvidia_smi import read_smi
from dgkit.doctor.runner import diagnose


def judged(name: str, check: str, **sections: str) -> Finding:
    made = load(next(FOLDER.glob(f"*/{name}.txt")))
    changed = {key.replace("__", " "): text for key, text in sections.items()}
    made = Published(made.name, made.head, {**made.sections, **changed})
    found = diagnose([made.machine()], goal=made.goal, size=made.size)
    return next(one for one in found.findings if one.check == check)


def test_an_exclusive_rdma_subsystem_keeps_its_devices_from_a_network_namespace() -> None:
    made: Any = load(FOLDER / "containers" / "nccl-925-other-vfs.txt")
    sections = {**made.sections, "tree": made.sections["tree"].replace("rdma=", "rdma=#")}
    sections["names /sys/class/infiniband"] = ""
    sections["run rdma system"] = "netns exclusive copy-on-fork on\n"
    found = diagnose([Published(made.name, made.head, sections).machine()], goal=made.goal)
    (one,) = found.of("rdma-devices")
    assert (one.verdict, one.found) == (Verdict.FAIL, "none")
    assert "exclusive mode" in one.why
    assert any("netns" in line for line in one.remedy)


def test_a_limit_of_the_address_space_explains_cudas_lack_of_memory() -> None:
    broken = {"cuda": "init=2 CUDA_ERROR_OUT_OF_MEMORY\n"}
    limit = {"ask__address-space": '{"soft": 4294967296, "hard": null}'}
    one = judged("nccl-988-nopeermem", "cuda-driver", **broken, **limit)
    assert "4 GiB" in one.why
    assert one.remedy == ("ulimit -v unlimited",)
    assert "GiB" not in judged("nccl-988-nopeermem", "cuda-driver", **broken).why


def test_a_virtual_gpu_without_a_licence_says_so() -> None:
    text = """
Driver Version                            : 550.144.06

Attached GPUs                             : 1
GPU 00000002:00:00.0
    Product Name                          : NVIDIA A10-24Q
    vGPU Software Licensed Product
        Product Name                      : NVIDIA RTX Virtual Workstation
        License Status                    : {status}
    Compute Mode                          : Default
"""
    name, key = "aks-4870-vgpu", "run__nvidia-smi -q"
    unlicensed = text.format(status="Unlicensed (Unrestricted)")
    assert read_smi(unlicensed).gpus[0].unlicensed
    assert "licence" in judged(name, "cuda-context", **{key: unlicensed}).why
    assert judged(name, "gpu-present", **{key: unlicensed}).verdict is Verdict.WARN
    licensed = text.format(status="Licensed (Expiry: 2026-12-1 0:0:0 GMT)")
    assert judged(name, "gpu-present", **{key: licensed}).verdict is Verdict.OK


def test_a_card_that_rshims_settings_exclude_is_named() -> None:
    settings = {"text__/etc/rshim.conf": "BOOT_TIMEOUT 150\nnone pcie-0000:b1:00.2\n"}
    one = judged("rshim-155-bmc", "bluefield-tmfifo", **settings)
    assert "excludes pcie-0000:b1:00.2" in one.why
