# SPDX-License-Identifier: Apache-2.0
"""GPUs: from sysfs, the driver's files and nvidia-smi, joined by address."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.doctor.gpus import ADDRESS, CLOSED, h200, smi, with_gpu
from support.doctor.machines import judge, machine

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.facts.gpus import bar1_size, gpus
from dgkit.doctor.machine import Case, Machine
from dgkit.doctor.registry import checks

RESOURCE = f"text /sys/bus/pci/devices/{ADDRESS}/resource"
NONE = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
# As seen on an H200: BAR0 has 64 bits, so it takes two lines.
HOPPER = (
    "0x0000104002000000 0x0000104002ffffff 0x000000000014220c\n"
    f"{NONE}"
    "0x0000100000000000 0x0000103fffffffff 0x000000000014220c\n"
    f"{NONE}"
    "0x0000104000000000 0x0000104001ffffff 0x000000000014220c\n"
    f"{NONE}{NONE}"
)
# A GPU with a BAR0 of 32 bits, and 256 MiB of BAR1.
AMPERE = (
    "0x00000000a6000000 0x00000000a6ffffff 0x0000000000040200\n"
    "0x0000004000000000 0x000000400fffffff 0x000000000014220c\n"
    f"{NONE}"
    "0x0000004010000000 0x0000004011ffffff 0x000000000014220c\n"
    f"{NONE}"
    "0x0000000000004000 0x000000000000407f 0x0000000000040101\n"
    "0x00000000a7000000 0x00000000a707ffff 0x0000000000046200\n"
)


def test_bar1_is_the_second_region_whatever_the_width_of_bar0() -> None:
    assert bar1_size(HOPPER) == 262144 << 20
    assert bar1_size(AMPERE) == 256 << 20
    assert bar1_size(NONE * 7) is None
    assert bar1_size("") is None
    assert bar1_size("no numbers\n") is None


def test_all_that_nvidia_smi_says_is_there() -> None:
    (gpu,) = gpus(h200())
    assert (gpu.index, gpu.address, gpu.name) == (0, ADDRESS, "NVIDIA H200")
    assert (gpu.bar1_total, gpu.bar1_free) == (262144 << 20, 262143 << 20)
    assert gpu.memory == 143771 << 20
    assert (gpu.persistence, gpu.mig, gpu.architecture) == (True, False, "Hopper")
    assert gpu.uuid.startswith("GPU-")
    assert gpu.label == f"GPU 0 ({ADDRESS})"


def test_without_nvidia_smi_sysfs_and_the_driver_tell_what_they_can() -> None:
    information = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1234\nDevice Minor: \t 0\n"
    key = f"text /proc/driver/nvidia/gpus/{ADDRESS}/information"
    (gpu,) = gpus(with_gpu({RESOURCE: HOPPER, key: information}))
    assert (gpu.index, gpu.name, gpu.uuid) == (None, "NVIDIA H200", "GPU-1234")
    assert (gpu.bar1_total, gpu.bar1_free) == (262144 << 20, None)
    assert gpu.persistence is None
    assert gpu.label == ADDRESS


def test_gpus_are_joined_by_address_in_its_order_and_keep_nvidia_smis_number() -> None:
    other = "0000:17:00.0"
    text = smi(addresses=("00000000:CA:00.0", "00000000:17:00.0"))
    found = gpus(with_gpu({"run nvidia-smi -q": text}))
    assert [(gpu.address, gpu.index) for gpu in found] == [(other, 1), (ADDRESS, 0)]


def test_a_machine_without_one_has_none() -> None:
    assert gpus(machine({})) == ()
    assert gpus(machine({"names /sys/bus/pci/devices": ()})) == ()


@given(st.text(alphabet="0123456789abcdefx \n-", max_size=300) | st.text(max_size=60))
def test_no_resource_file_is_too_odd(text: str) -> None:
    size = bar1_size(text)
    assert size is None or size > 1


@given(st.booleans(), st.integers(20, 38), st.integers(0, 1 << 40))
def test_bar1_is_read_back_from_regions_as_linux_writes_them(
    wide: bool, bits: int, start: int
) -> None:
    regions = [(1 << 44, 16 << 20), *([(0, 0)] if wide else []), (start << 20, 1 << bits)]
    lines = [f"{at:#018x} {at + max(size, 1) - 1:#018x} 0x0" for at, size in regions]
    assert bar1_size("\n".join(lines)) == 1 << bits


FAMILIES = ("driver", "cuda", "dmabuf", "peermem", "gdrcopy", "bar1", "platform")
SPARK = smi("NVIDIA GB10", bar1=("N/A", "N/A"), memory="N/A", persistence="Disabled")
RTX = smi("NVIDIA RTX A4000", bar1=("256 MiB", "3 MiB"), memory="16376 MiB", driver="470.10")
MACHINES = {
    "h200": h200(),
    "spark": h200({"run nvidia-smi -q": SPARK}),
    "small and closed": h200(
        {"run nvidia-smi -q": RTX, "text /proc/driver/nvidia/version": CLOSED}
    ),
    "no driver": with_gpu(),
    "no gpu": machine({}),
    "nothing may be read": Machine(
        RecordedReader(Snapshot(source="synthetic: a test", otherwise="unrecorded", readings={}))
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("goal", Goal)
def test_each_finding_is_short_has_a_source_and_says_what_to_do(
    family: str, name: str, goal: Goal
) -> None:
    for one in judge(family, MACHINES[name], goal=goal):
        assert 0 < len(one.found) <= 45, one.found
        assert len(one.needed) <= 45, one.needed
        assert "The check failed" not in one.why, one.why
        if one.verdict is not Verdict.NOT_APPLICABLE:
            assert one.sources, one.check
        if one.verdict > Verdict.OK:
            assert one.why, one.check
            assert one.remedy or one.follows, one.check
            assert one.why.endswith("."), one.why


# All that these families look at on a machine with one GPU.
LOOKED_AT = (
    *("run nvidia-smi -q", "text /proc/driver/nvidia/version", "text /proc/driver/nvidia/params"),
    *("text /sys/module/nvidia/version", "text /proc/modules", "text /etc/os-release", RESOURCE),
    *("run modinfo -F filename nvidia", "run modinfo -F filename nvidia-peermem"),
    *("run nvcc --version", "link /usr/local/cuda", "text /usr/local/cuda/version.json"),
    *("text /usr/local/cuda/version.txt", "text /proc/device-tree/model"),
    *("text /sys/class/dmi/id/product_name", "text /etc/modprobe.d/nvidia.conf"),
    f"text /proc/driver/nvidia/gpus/{ADDRESS}/information",
)
ANSWERED = ("probe cuda", "probe libraries", "probe info", "ask uname", "ask environ", "ask euid")
WORDS = st.sampled_from(
    (
        *(
            "GPU 00000000:CA:00.0",
            "NVRM version: ",
            "Kernel Module ",
            "Open ",
            "580.1",
            "\n",
            " : ",
        ),
        *("RegistryDwords: ", '"', "release ", "13.0", "MiB", "N/A", "0x1 ", "{}", '{"cuda":'),
        *("=", ";"),
    )
)
TEXTS = st.text(max_size=60) | st.lists(WORDS, max_size=30).map("".join)
FAULTS = st.sampled_from(("absent", "denied", "late", "failed", "unrecorded"))
LOOKS = TEXTS | FAULTS.map(lambda fault: Reading(fault=fault, why=f"it is {fault}"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("init", "code", "name", "driver", "devices", "address", "attributes"))
            | st.sampled_from(("gpu", "libraries", "CuPy", "libgdrapi.so.2", "path", "release")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(LOOKED_AT, LOOKS)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(ANSWERED, PLAIN)),
    st.sampled_from([Goal.ARM_DMA, Goal.RDMA, Goal.GPUNETIO]),
)
@settings(max_examples=60)
def test_whatever_a_machine_says_no_check_fails_itself(
    looks: dict[str, object], answers: dict[str, object], goal: Goal
) -> None:
    case = Case(machine=with_gpu({**looks, **answers}), goal=goal)
    for check in checks():
        if check.family in FAMILIES and goal in check.goals:
            assert tuple(check.findings(case)), check.name
