# SPDX-License-Identifier: Apache-2.0
"""/proc/driver/nvidia and /proc/modules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.gpus import CLOSED, MODULES, OPEN
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.nvidia_proc import (
    Driver,
    driver,
    information,
    key_values,
    modules,
    read_modules,
    read_version,
    registry,
    version_key,
)

ARM = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (x@y)  "
    "Tue Sep 23 09:42:01 UTC 2025\nGCC version:  gcc version 13.3.0\n"
)
TEGRA = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.3.0  Release Build  (b@t)  Mon\n"
)
OLD = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022\n"
    "GCC version:  gcc version 9.4.0\n"
)


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (OPEN, "580.159.04", "open"),
        (CLOSED, "535.161.07", "closed"),
        (ARM, "580.95.05", "open"),
        (TEGRA, "540.3.0", "open"),
        (OLD, "390.157", "closed"),
        ("NVRM version: something new  600.10\n", "600.10", ""),
        ("nothing of it\n", "", ""),
        ("", "", ""),
    ],
)
def test_version_and_flavour_are_read(text: str, version: str, flavour: str) -> None:
    assert read_version(text) == (version, flavour)


def test_the_driver_is_what_proc_says_else_sysfs_else_the_list_of_modules() -> None:
    proc, sysfs = "text /proc/driver/nvidia/version", "text /sys/module/nvidia/version"
    assert driver(machine({proc: OPEN})) == Driver(True, "580.159.04", "open", "")
    by_sysfs = driver(machine({sysfs: "535.161.07\n"}))
    assert (by_sysfs.loaded, by_sysfs.version, by_sysfs.flavour) == (True, "535.161.07", "")
    assert by_sysfs.why
    assert driver(machine({"text /proc/modules": MODULES})).loaded is True
    assert driver(machine({"text /proc/modules": "ext4 1 2 - Live 0x0\n"})).loaded is False
    assert driver(machine({})).loaded is False


def test_a_driver_that_may_not_be_looked_at_is_neither_loaded_nor_not() -> None:
    denied = Reading(fault="denied", why="it may be read by root alone")
    hidden = machine({"text /proc/driver/nvidia/version": denied, "text /proc/modules": denied})
    assert driver(hidden) == Driver(None, "", "", denied.why)


def test_modules_are_read_with_and_without_counts_of_users() -> None:
    found = read_modules(MODULES)
    assert found["nvidia"].users == ("nvidia_uvm",)
    assert found["nvidia_uvm"].users == ()
    assert found["nvidia_uvm"].state == "Live"
    assert modules(machine({})) is None


def test_registry_keys_are_read_from_params() -> None:
    params = 'EnableMSI: 1\nRegistryDwords: "PeerMappingOverride=1;RmX=0x2;"\nRmMsg: ""\n'
    assert registry(params) == {"PeerMappingOverride": "1", "RmX": "0x2"}
    assert registry('RegistryDwords: ""\n') == {}
    assert registry("") == {}


def test_what_the_driver_says_of_a_gpu_is_read_without_what_it_does_not_know() -> None:
    text = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t 0\n"
    key = "text /proc/driver/nvidia/gpus/0000:00:06.0/information"
    found = information(machine({key: text}), "0000:00:06.0")
    assert found == {"Model": "NVIDIA H200", "Device Minor": "0"}


def test_versions_compare_as_numbers() -> None:
    assert version_key("580.95.05") < version_key("580.159.04")
    assert version_key("6.8.0-45-generic") == (6, 8, 0)
    assert version_key("N/A") == version_key("") == ()


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    version, flavour = read_version(text)
    assert flavour in ("open", "closed", "")
    assert version == "" or version_key(version)
    for name, module in read_modules(text).items():
        assert name == module.name
    assert all(key_values(text))
    registry(text)


@given(st.integers(1, 999), st.integers(0, 999), st.integers(0, 99), st.booleans())
def test_versions_of_every_kind_are_found(major: int, minor: int, patch: int, opened: bool) -> None:
    version = f"{major:03}.{minor:02}.{patch:02}"
    words = "Open Kernel Module for aarch64" if opened else "x86_64 Kernel Module"
    text = f"NVRM version: NVIDIA UNIX {words}  {version}  Release Build\nGCC version:  12.3.0\n"
    assert read_version(text) == (version, "open" if opened else "closed")
