"""The kernel's log: what it says is quoted where the remedy would be to look there."""

from __future__ import annotations

from doctor.published import FOLDER, load
from support.doctor.machines import machine

from dgkit.doctor.facts.kernel_log import errors, quoted
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
