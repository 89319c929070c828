# SPDX-License-Identifier: Apache-2.0
"""The kernel's log: what it says is quoted where the remedy would be to look there."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, Published, load
from support.doctor.machines import machine

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.facts import pci
from dgkit.doctor.facts.kernel_log import errors, parse, quoted
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose

LOG = """
[    0.000000] Linux version 6.8.0-31-generic (builder@host)
[    9.100000] NVRM: the failure of an earlier start
[    0.000000] Linux version 6.8.0-45-generic (builder@host)
[    2.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14
[    3.100000] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0
[    4.100000] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)
[    4.200000] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0
Nov 29 10:00:00 host kernel: [    5.100000] Loading of unsigned module is rejected
"""
SEARCH = "sudo dmesg | grep -i -e nvrm -e 'module is'"


def test_the_errors_of_the_last_start_are_found_as_the_command_would() -> None:
    found = errors(machine({"run dmesg": LOG}), SEARCH)
    assert found == [
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
        "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        "Loading of unsigned module is rejected",
    ]
    assert quoted(found) == f'The kernel\'s log: "{found[0]}" (2 more).'
    assert quoted(["x" * 500 + " failed"]).count("x") < 200


def test_what_was_corrected_is_no_error_and_a_log_that_is_not_read_has_none() -> None:
    assert errors(machine({"run dmesg": LOG}), "sudo dmesg | grep -i aer") == []
    assert errors(machine({}), SEARCH) == []


def test_a_finding_quotes_the_log_in_the_place_of_the_command() -> None:
    made = load(FOLDER / "drivers" / "ogkm-862-rebar.txt")
    found = diagnose([made.machine()], goal=made.goal, size=made.size).of("driver-loaded")
    assert any("RmInitAdapter failed" in one.why or "NVRM" in one.why for one in found)
    assert not any("dmesg" in line for one in found for line in one.remedy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ 1.0] efa 0000:9d:00.0: Failed to get MR", ("rdma nic", "nic", "0000:9d:00.0", True)),
        (
            "Nov 29 10:00:00 h kernel: DMAR: [DMA Read] Request device [17:00.0] fault addr 0x0",
            ("iommu", "iommu", "0000:17:00.0", True),
        ),
        (
            "[Sun Nov 29 1:00:00 2026] NVRM: Xid (PCI:0000:06:00): 79, x",
            ("nvidia", "gpu", "0000:06:00", True),
        ),
        (
            "[ 1.0] pci 0000:00:15.0: BAR 13: no space for [io  size 0x1000]",
            ("pcieport", "pcie", "0000:00:15.0", False),
        ),
        (
            "[ 1.0] nvidia: module verification failed: signature missing - tainting kernel",
            ("nvidia", "gpu", "", False),
        ),
        (
            "[ 1.0] amdgpu 0000:83:00.0: probe failed with error -12",
            ("amdgpu", "amd", "0000:83:00.0", True),
        ),
        (
            "[ 1.0] rshim_pcie 0000:b1:00.2: Failed to open",
            ("rshim", "bluefield", "0000:b1:00.2", True),
        ),
        (
            "[ 1.0] pcieport 0000:00:01.0: AER: Multiple Uncorrectable error received",
            ("pcieport", "pcie", "0000:00:01.0", True),
        ),
        ("[ 1.0] vfio-pci 0000:41:00.0: reset failed", ("vfio", "iommu", "0000:41:00.0", True)),
        ("[ 1.0] mlx5_core 0000:01:00.0: 10 errors", ("mlx5_core", "nic", "0000:01:00.0", True)),
        ("[ 1.0] mlx5_core 0000:01:00.0: 0 errors", ("mlx5_core", "nic", "0000:01:00.0", False)),
    ],
)  # fmt: skip
def test_a_line_is_attributed_to_its_driver_and_device(text: str, expected: object) -> None:
    (line,) = parse(text)
    assert (line.driver, line.subsystem, line.address, line.error) == expected


def test_a_message_of_several_lines_is_one_line() -> None:
    (line,) = parse(
        "[  349.902869] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2330)\n"
        "[  349.902869] NVRM: installed in this system is not supported by the\n"
        "[  349.902869] NVRM: NVIDIA 550.90.07 driver release.\n"
    )
    assert "not supported by the NVIDIA 550.90.07 driver release" in line.text
    assert (line.address, line.error) == ("0000:01:00.0", True)


def test_a_window_that_was_assigned_later_and_a_port_that_recovered_have_no_error() -> None:
    lines = parse(
        "pci 0000:01:00.0: BAR 1 [mem size 0x1000 64bit pref]: can't assign; no space\n"
        "pci 0000:01:00.0: BAR 1 [mem 0x10-0x20 64bit pref]: assigned\n"
        "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0\n"
        "pcieport 0000:00:01.0: AER: device recovery successful\n"
    )
    assert not any(line.error for line in lines)


def judged(text: str, **sections: str) -> Finding:
    """Return the leading finding of a machine that works but for this log."""
    made = load(FOLDER / "communication" / "deepep-155-h100.txt")
    made = Published(made.name, made.head, {**made.sections, "run dmesg": text, **sections})
    found = made.machine()
    devices = found.know(pci.tree)
    gpu, nic = devices.gpus[0], devices.nics[0]
    text = text.format(gpu=gpu.address, nic=nic.address, port=gpu.path[1])
    made = Published(made.name, made.head, {**made.sections, "run dmesg": text})
    return diagnose([made.machine()], goal=Goal.RDMA).findings[0]


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("NVRM: GPU {gpu}: unable to frobnicate", "gpu-log"),
        ("pcieport {port}: AER: Uncorrectable (Fatal) error message received", "gpu-log"),
        ("mlx5_core {nic}: unable to frobnicate", "nic-log"),
        ("NVRM: GPU 0000:fe:1f.7: unable to frobnicate", ""),
        ("NVRM: Xid (PCI:{gpu}): 31, pid=1, MMU Fault", ""),
    ],
)
def test_an_error_of_a_device_in_use_leads_and_is_quoted_known_or_not(
    line: str, check: str
) -> None:
    first = judged(f"{line}\n")
    assert (first.check if first.verdict >= Verdict.WARN else "") == check
    assert not check or line.partition("}")[2][:20] in first.why


def test_secure_boot_that_refuses_the_driver_leads_with_the_kernels_words() -> None:
    text = "Loading of module with unavailable key is rejected\n"
    first = judged(text, driver="none", system="loaded=mlx5_core")
    assert (first.check, first.verdict) == ("gpu-log", Verdict.FAIL)
    assert "unavailable key" in first.why
    assert any("mokutil" in line for line in first.remedy)
    assert judged(text).verdict < Verdict.WARN  # it was another module
