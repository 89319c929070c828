# SPDX-License-Identifier: Apache-2.0
"""`nvidia-smi -q`, as drivers from 384 to 580 write it, and as it fails."""

from __future__ import annotations

import string
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.gpus import smi as output
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.nvidia_smi import pci_address, read_smi, smi

# Short forms after public outputs: netdata/netdata#4892 (410), NVIDIA/nvidia-docker#954 (396),
# fastfetch-cli/fastfetch#1029 (555), hashicorp/nomad-device-nvidia#87 (580 on a DGX Spark).
V396 = """
==============NVSMI LOG==============

Timestamp                           : Sun Apr 14 18:55:20 2019
Driver Version                      : 396.54

Attached GPUs                       : 1
GPU 00000000:01:00.0
    Product Name                    : GeForce GTX 1080
    Product Brand                   : GeForce
    Persistence Mode                : Disabled
    Accounting Mode Buffer Size     : 4000
    Driver Model
        Current                     : N/A
        Pending                     : N/A
    GPU UUID                        : GPU-00000000-0000-0000-0000-000000000001
    GPU Virtualization Mode
        Virtualization mode         : None
    PCI
        Bus                         : 0x01
        Bus Id                      : 00000000:01:00.0
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 1
    FB Memory Usage
        Total                       : 8119 MiB
        Used                        : 2 MiB
        Free                        : 8117 MiB
    BAR1 Memory Usage
        Total                       : 256 MiB
        Used                        : 6 MiB
        Free                        : 250 MiB
"""
V580_SPARK = """
==============NVSMI LOG==============

Timestamp                                 : Mon Jan 19 01:12:47 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 0000000F:01:00.0
    Product Name                          : NVIDIA GB10
    Product Brand                         : NVIDIA RTX
    Display Mode                          : Requested functionality has been deprecated
    Persistence Mode                      : Enabled
    Addressing Mode                       : ATS
    FB Memory Usage
        Total                             : [N/A]
        Used                              : Not Supported
    BAR1 Memory Usage
        Total                             : N/A
        Used                              : N/A
"""


def test_an_output_of_driver_396_is_read() -> None:
    found = read_smi(V396)
    assert (found.driver, found.cuda, found.trouble) == ("396.54", "", "")
    (gpu,) = found.gpus
    assert gpu.address == "0000:01:00.0"
    assert gpu.value("Product Name") == "GeForce GTX 1080"
    assert gpu.flag("Persistence Mode") is False
    assert gpu.size("BAR1 Memory Usage/Total") == 256 << 20
    assert gpu.size("BAR1 Memory Usage/Free") == 250 << 20
    assert gpu.size("FB Memory Usage/Total") == 8119 << 20
    assert gpu.value("PCI/GPU Link Info/PCIe Generation/Max") == "3"
    assert gpu.value("Driver Model/Current") == ""


def test_an_output_of_driver_580_on_a_dgx_spark_has_no_bar1_and_a_domain() -> None:
    (gpu,) = read_smi(V580_SPARK).gpus
    assert gpu.address == "000f:01:00.0"
    assert gpu.size("BAR1 Memory Usage/Total") is None
    assert gpu.size("FB Memory Usage/Total") is None
    assert gpu.value("Display Mode") == gpu.value("FB Memory Usage/Used") == ""
    assert gpu.value("Addressing Mode") == "ATS"


def test_several_gpus_keep_their_order_and_their_own_values() -> None:
    text = output(addresses=("00000000:17:00.0", "00000000:CA:00.0"), driver="550.54.15")
    found = read_smi(text)
    assert [gpu.address for gpu in found.gpus] == ["0000:17:00.0", "0000:ca:00.0"]
    assert len({gpu.value("GPU UUID") for gpu in found.gpus}) == 2
    assert found.driver == "550.54.15"


@pytest.mark.parametrize(
    ("text", "code", "trouble"),
    [
        (
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running.\n\n"
            ),
            9,
            "driver",
        ),
        (
            (
                "Failed to initialize NVML: Driver/library version mismatch\n"
                "NVML library version: 570.124\n"
            ),
            18,
            "mismatch",
        ),
        ("No devices were found\n", 6, "devices"),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4, "denied"),
        (
            (
                "Unable to determine the device handle for GPU0000:17:00.0: GPU is lost.  Reboot "
                "the system to recover this GPU\n"
            ),
            15,
            "lost",
        ),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", 12, "library"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "unknown"),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", 17, "other"),
        ("", 1, "other"),
    ],
)
def test_each_way_to_fail_is_told_apart(text: str, code: int, trouble: str) -> None:
    found = smi(machine({"run nvidia-smi -q": Reading(text=text, code=code)}))
    assert (found.trouble, found.gpus) == (trouble, ())
    assert found.why == (text.splitlines()[0] if text else "nvidia-smi printed nothing")


def test_what_it_says_on_standard_error_counts() -> None:
    ran = Reading(said="Failed to initialize NVML: Driver/library version mismatch\n", code=18)
    assert smi(machine({"run nvidia-smi -q": ran})).trouble == "mismatch"


def test_a_machine_without_it_and_one_where_it_hangs_say_so() -> None:
    assert smi(machine({})).trouble == "absent"
    late = Reading(fault="late", why="nvidia-smi gave no answer within 5.0 s")
    found = smi(machine({"run nvidia-smi -q": late}))
    assert (found.trouble, found.why) == ("late", late.why)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:CA:00.0", "0000:ca:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:17:00.1", "0000:17:00.1"),
        ("17:00.1", ""),
        ("N/A", ""),
        ("", ""),
    ],
)
def test_addresses_become_those_of_sysfs(text: str, address: str) -> None:
    assert pci_address(text) == address


@given(st.text() | st.text(alphabet="GPU 0123456789:.abcdef/\n-NA[]MiB", max_size=400))
def test_no_text_is_too_odd(text: str) -> None:
    found = read_smi(text)
    assert bool(found.gpus) != bool(found.trouble)
    for gpu in found.gpus:
        for path in gpu.fields:
            assert gpu.value(path) == gpu.value(path).strip()
            gpu.size(path), gpu.flag(path)


_ALNUM = string.ascii_letters + string.digits
_FIRST = st.builds(
    str.__add__, st.sampled_from(string.ascii_uppercase), st.text(_ALNUM, min_size=1)
)
_SECOND = st.sampled_from(["", " Id", " Memory", " Usage"])
_WORD = st.builds(str.__add__, _FIRST, _SECOND)
_VALUE = st.builds(
    "{}{}{}".format, *(st.sampled_from(_ALNUM), st.text(f"{_ALNUM} :./-"), st.sampled_from(_ALNUM))
)
_FIELDS = st.dictionaries(_WORD, _VALUE | st.dictionaries(_WORD, _VALUE, min_size=1), max_size=6)


def _write(fields: dict[str, object], width: int, depth: int = 1) -> str:
    lines = []
    for name, value in fields.items():
        start = f"{'    ' * depth}{name}"
        if isinstance(value, dict):
            lines += [start, _write(value, width, depth + 1)]
        else:
            lines.append(f"{start:<{width}} : {value}")
    return "\n".join(lines)


@given(st.lists(_FIELDS, min_size=1, max_size=4), st.integers(8, 60))
def test_what_is_written_in_its_format_is_read_back(gpus: list[dict], width: int) -> None:
    text = "".join(f"\nGPU {at:08X}:0A:00.0\n{_write(one, width)}" for at, one in enumerate(gpus))
    found = read_smi(text).gpus
    assert [one.address for one in found] == [f"{at:04x}:0a:00.0" for at in range(len(gpus))]
    for one, fields in zip(found, gpus, strict=True):
        flat = {
            f"{name}/{inner}" if inner else name: text
            for name, value in fields.items()
            for inner, text in (value.items() if isinstance(value, dict) else [("", value)])
        }
        assert one.fields == flat


def test_long_names_of_sections_cost_no_memory() -> None:
    name = "x" * 100_000
    many = "\n".join(f"  k{at} : v" for at in range(8_000))
    tracemalloc.start()
    read_smi(f"{name}\n{many}\n")
    read_smi("\n".join(" " * at + "section" for at in range(900)) + f"\n{' ' * 900}k : v\n" * 500)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 << 20
