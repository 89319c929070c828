# SPDX-License-Identifier: Apache-2.0
"""dma-buf of GPU memory: as CUDA says, or as follows from the rest."""

from __future__ import annotations

import pytest
from support.doctor.gpus import ADDRESS, CLOSED, NO_MODULE, OPEN, h200, h200_and_nic, smi
from support.doctor.machines import UNAME, judge

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

VERSION, SMI, PROBE = "text /proc/driver/nvidia/version", "run nvidia-smi -q", "probe cuda"
PEERMEM = "run modinfo -F filename nvidia-peermem"
LOADED = {"names /sys/module/nvidia_peermem": ("version",)}


def asked(**attributes: int | None) -> dict[str, object]:
    """What CUDA answers of the one GPU."""
    device = {"ordinal": 0, "address": ADDRESS, "attributes": attributes}
    init = {"code": 0, "name": "CUDA_SUCCESS"}
    return {PROBE: {"init": init, "driver": 13000, "devices": [device]}}


def linux(release: str) -> dict[str, object]:
    return {"ask uname": {**UNAME, "release": release}}


def one(on: Machine, check: str = "dmabuf-gpu") -> Finding:
    (found,) = judge(check, on)
    return found


def test_what_cuda_says_counts() -> None:
    yes, no = asked(DMA_BUF_SUPPORTED=1), asked(DMA_BUF_SUPPORTED=0)
    assert one(h200_and_nic({**yes, VERSION: CLOSED})).verdict is Verdict.OK
    assert one(h200_and_nic({**no, PEERMEM: NO_MODULE})).verdict is Verdict.FAIL
    assert one(h200_and_nic({**no, **LOADED})).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("readings", "names"),
    [
        ({VERSION: CLOSED}, "closed"),
        (linux("5.10.0-28-amd64"), "5.10"),
        ({SMI: smi("Tesla V100-PCIE-32GB", architecture="Volta")}, "Volta"),
        ({VERSION: OPEN.replace("580.159.04", "510.39.01")}, "510.39.01"),
    ],
)
def test_each_cause_that_rules_a_dma_buf_out_is_named(
    readings: dict[str, object], names: str
) -> None:
    found = one(h200_and_nic({**readings, PEERMEM: NO_MODULE}))
    assert found.verdict is Verdict.FAIL
    assert names in found.why


def test_without_cuda_it_follows_from_modules_and_kernel_which_are_named() -> None:
    found = one(h200_and_nic())
    assert found.verdict is Verdict.OK
    assert "580.159.04" in found.why
    assert "6.8" in found.why


def test_the_older_way_decides_between_a_warning_and_a_failure() -> None:
    closed = {VERSION: CLOSED}
    loadable = one(h200_and_nic({**closed, PEERMEM: "/lib/modules/6.8.0/nvidia-peermem.ko\n"}))
    assert loadable.verdict is Verdict.FAIL
    assert loadable.remedy[0] == "sudo modprobe nvidia-peermem"
    assert loadable.remedy.count("# or:") == 2  # the module, pinned memory, another driver
    ubuntu = {"text /etc/os-release": "ID=ubuntu\n", **linux("6.8.0-51-generic")}
    kernel = one(
        h200_and_nic({**closed, **ubuntu, PEERMEM: "/lib/modules/6.8.0/nvidia-peermem.ko\n"})
    )
    assert "sudo modprobe nvidia-peermem" not in kernel.remedy
    assert one(h200_and_nic({**closed, **LOADED})).verdict is Verdict.NOT_APPLICABLE
    assert one(h200_and_nic(closed)).verdict is Verdict.WARN  # not known whether it is there


@pytest.mark.parametrize(
    ("release", "both"), [("5.15.0-91", True), ("6.1.0", True), ("6.2", False)]
)
def test_between_the_two_kernels_that_documents_name_the_check_says_so(
    release: str, both: bool
) -> None:
    found = one(h200_and_nic(linux(release)))
    assert found.verdict is Verdict.OK
    assert bool(found.disagree) is both
    assert not both or ("6.2" in found.disagree and "5.12" in found.disagree)


def test_a_flavour_that_is_not_known_leaves_it_open() -> None:
    denied = Reading(fault="denied", why="it may be read by root alone")
    found = one(h200_and_nic({VERSION: denied}))
    assert found.verdict is Verdict.UNKNOWN
    assert "flavour" in found.why


def test_a_dgx_spark_is_a_warning_that_leads_to_pinned_memory() -> None:
    spark = h200_and_nic(
        {SMI: smi("NVIDIA GB10", bar1=("N/A", "N/A")), **asked(DMA_BUF_SUPPORTED=0)}
    )
    found = one(spark)
    assert found.verdict is Verdict.WARN
    assert "pinned" in found.remedy[0]


@pytest.mark.parametrize(
    ("value", "verdict", "text"),
    [
        (1, Verdict.OK, "yes"),
        (0, Verdict.NOT_APPLICABLE, "nothing needs it"),
        (None, Verdict.NOT_APPLICABLE, "not known"),
    ],
)
def test_a_mapping_by_the_cpu_is_told_and_never_asked_for(
    value: int | None, verdict: Verdict, text: str
) -> None:
    found = one(h200_and_nic(asked(DMA_BUF_MMAP_SUPPORTED=value)), "dmabuf-mmap")
    assert found.verdict is verdict
    assert text in found.found


def test_a_dma_buf_that_no_device_would_import_is_not_asked_for() -> None:
    found = one(h200({VERSION: CLOSED, PEERMEM: NO_MODULE}))
    assert (found.verdict, found.remedy) == (Verdict.NOT_APPLICABLE, ())
    assert one(h200(asked(DMA_BUF_SUPPORTED=1))).verdict is Verdict.OK
