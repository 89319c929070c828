# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver, as checks see it."""

from __future__ import annotations

import pytest
from support.doctor.gpus import (
    ADDRESS,
    CLOSED,
    MODULES,
    NO_MODULE,
    OPEN,
    h200,
    h200_and_nic,
    smi,
    with_gpu,
)
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

VERSION = "text /proc/driver/nvidia/version"
PARAMS = "text /proc/driver/nvidia/params"
SMI = "run nvidia-smi -q"
MODINFO = "run modinfo -F filename nvidia"
PEERMEM = "run modinfo -F filename nvidia-peermem"
DENIED = Reading(fault="denied", why="it may be read by root alone")
LATE = Reading(fault="late", why="nvidia-smi gave no answer within 5.0 s")


def one(check: str, on: Machine, goal: Goal = Goal.ARM_DMA) -> Finding:
    (found,) = judge(check, on, goal=goal)
    return found


def test_a_gpu_that_is_there_is_named() -> None:
    found = one("gpu-present", h200())
    assert (found.verdict, found.found) == (Verdict.OK, "NVIDIA H200")


def test_a_machine_without_a_gpu_fails_once_and_asks_nothing_more() -> None:
    empty = machine({"names /sys/bus/pci/devices": ()})
    findings = judge("driver", empty)
    assert [f.check for f in findings if f.verdict is Verdict.FAIL] == ["gpu-present"]
    assert all(f.verdict in (Verdict.FAIL, Verdict.NOT_APPLICABLE) for f in findings)


@pytest.mark.parametrize(
    ("readings", "word"),
    [
        ({}, "switched off"),
        ({"text /proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0"}, "Tegra"),
        ({"ask uname": {**UNAME, "release": "5.15.153.1-microsoft-standard-WSL2"}}, "Windows"),
    ],
)
def test_a_gpu_that_is_no_pci_device_is_told_from_none(
    readings: dict[str, object], word: str
) -> None:
    found = one("gpu-present", machine({"names /sys/bus/pci/devices": (), **readings}))
    assert found.verdict is Verdict.FAIL
    assert word in found.why


def test_a_bus_that_cannot_be_listed_is_no_proof_of_no_gpu() -> None:
    found = one("gpu-present", machine({"names /sys/bus/pci/devices": DENIED}))
    assert found.verdict is Verdict.UNKNOWN
    assert DENIED.why in found.why


def test_a_driver_that_works_is_well() -> None:
    found = one("driver-loaded", h200())
    assert found.verdict is Verdict.OK
    assert "580.159.04" in found.found


@pytest.mark.parametrize(
    ("readings", "driver", "found", "remedy"),
    [
        ({}, "", "not installed", "nvidia-open"),
        ({}, "nouveau", "nouveau instead", "nvidia-open"),
        ({}, "vfio-pci", "held by vfio-pci", "virtual machine"),
        ({MODINFO: "/lib/modules/6.8.0/nvidia.ko\n"}, "", "installed, not loaded", "modprobe"),
    ],
)
def test_a_driver_that_is_not_loaded_fails_with_what_loads_it(
    readings: dict[str, object], driver: str, found: str, remedy: str
) -> None:
    said = one("driver-loaded", with_gpu(readings, driver=driver))
    assert (said.verdict, said.found) == (Verdict.FAIL, found)
    assert any(remedy in line for line in said.remedy)


def test_secure_boot_is_named_where_a_module_is_not_loaded() -> None:
    boot = "raw /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    module = {MODINFO: "/lib/modules/6.8.0/nvidia.ko\n"}
    on = one("driver-loaded", with_gpu({**module, boot: b"\6\0\0\0\1"}))
    off = one("driver-loaded", with_gpu({**module, boot: b"\6\0\0\0\0"}))
    assert "Secure Boot" in on.why
    assert "Secure Boot" not in off.why


def test_the_key_that_secure_boot_asks_for_is_where_the_distribution_has_it() -> None:
    boot = "raw /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    known = {MODINFO: "/lib/modules/6.8.0/nvidia.ko\n", boot: b"\6\0\0\0\1"}
    for release, key in (
        ("ID=ubuntu\n", "shim-signed/mok/MOK.der"),
        ("ID=rocky\n", "dkms/mok.pub"),
    ):
        found = one("driver-loaded", with_gpu({**known, "text /etc/os-release": release}))
        assert key in found.remedy[-2]


def test_what_is_not_there_without_a_gpu_is_said_where_errors_point_to() -> None:
    found = one("driver-loaded", machine({"names /sys/bus/pci/devices": ()}))
    assert (found.verdict, found.needed) == (Verdict.NOT_APPLICABLE, "dgkit doctor gpu-present")
    assert "No PCI device" in found.why


def test_red_hat_gets_its_own_command() -> None:
    found = one("driver-loaded", with_gpu({"text /etc/os-release": 'ID="rocky"\nVERSION="9"\n'}))
    assert "sudo dnf -y install nvidia-open" in found.remedy


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\n", "library and kernel"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            "does not answer",
        ),
        ("No devices were found\n", "finds no GPU"),
        ("Failed to initialize NVML: GPU is lost\n", "fallen off the bus"),
        ("Failed to initialize NVML: Insufficient Permissions\n", "not for this user"),
    ],
)
def test_what_nvidia_smi_complains_of_fails_in_its_words(text: str, found: str) -> None:
    said = one("driver-loaded", h200({SMI: Reading(text=text, code=9)}))
    assert said.verdict is Verdict.FAIL
    assert found in said.found
    assert text.strip() in said.why
    assert said.remedy


def test_missing_device_files_fail_only_where_dev_was_read() -> None:
    bare = h200({"names /dev": ("null", "zero")}, without=(SMI,))
    assert one("driver-loaded", bare).found == "no device files"
    unread = h200({"names /dev": DENIED}, without=(SMI,))
    assert one("driver-loaded", unread).verdict is Verdict.OK


def test_device_files_for_a_group_alone_are_a_warning_unless_they_work() -> None:
    closed = {PARAMS: "DeviceFileGID: 44\nDeviceFileMode: 432\n", "ask euid": 1000}
    found = one("driver-loaded", h200(closed, without=(SMI,)))
    assert (found.verdict, found.found) == (Verdict.WARN, "device files are 0660")
    assert one("driver-loaded", h200(closed)).verdict is Verdict.OK
    assert one("driver-loaded", h200({**closed, "ask euid": 0}, without=(SMI,))).verdict is (
        Verdict.OK
    )


def test_a_driver_that_may_not_be_looked_at_is_not_judged() -> None:
    hidden = with_gpu({VERSION: DENIED, "text /proc/modules": DENIED})
    found = one("driver-loaded", hidden)
    assert found.verdict is Verdict.UNKNOWN
    assert DENIED.why in found.why


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({}, Verdict.OK),
        ({VERSION: CLOSED, PEERMEM: "/lib/modules/6.8.0/nvidia-peermem.ko\n"}, Verdict.OK),
        ({VERSION: CLOSED, "names /sys/module/nvidia_peermem": ("version",)}, Verdict.OK),
        ({VERSION: CLOSED, PEERMEM: NO_MODULE}, Verdict.FAIL),
        ({VERSION: DENIED}, Verdict.UNKNOWN),
    ],
)
def test_closed_modules_fail_only_where_peermem_is_missing_too(
    readings: dict[str, object], verdict: Verdict
) -> None:
    found = one("driver-flavour", h200_and_nic(readings))
    assert found.verdict is verdict
    if verdict in (Verdict.WARN, Verdict.FAIL):
        assert "nvidia-open" in found.remedy[-2]


def test_closed_modules_only_warn_where_no_device_would_use_a_dma_buf() -> None:
    found = one("driver-flavour", h200({VERSION: CLOSED, PEERMEM: NO_MODULE}))
    assert found.verdict is Verdict.WARN
    assert "no NIC or DPU" in found.why


@pytest.mark.parametrize(
    ("version", "goal", "verdict"),
    [
        ("580.159.04", Goal.GPUNETIO, Verdict.OK),
        ("570.124.06", Goal.GPUNETIO, Verdict.OK),  # Ethernet and Verbs need no later one
        ("570.124.06", Goal.ARM_DMA, Verdict.OK),
        ("525.60.13", Goal.RDMA, Verdict.OK),
        ("470.199.02", Goal.RDMA, Verdict.OK),
        ("470.199.02", Goal.GPUNETIO, Verdict.FAIL),
    ],
)
def test_a_driver_must_be_as_new_as_the_goal_asks(
    version: str, goal: Goal, verdict: Verdict
) -> None:
    changed = {VERSION: OPEN.replace("580.159.04", version), SMI: smi(driver=version)}
    found = one("driver-version", h200(changed), goal)
    assert (found.verdict, found.found) == (verdict, version)


def test_a_driver_older_than_the_toolkit_that_gpunetio_is_built_with_warns() -> None:
    nvcc = {"run nvcc --version": "Cuda compilation tools, release 13.0, V13.0.8"}
    old = {VERSION: OPEN.replace("580.159.04", "570.124.06"), SMI: smi(driver="570.124.06")}
    assert one("driver-version", h200({**old, **nvcc}), Goal.GPUNETIO).verdict is Verdict.WARN


def test_a_version_in_no_known_words_is_not_judged() -> None:
    odd = h200({VERSION: "NVRM version: NVIDIA UNIX Kernel Module of tomorrow\n"}, without=(SMI,))
    assert one("driver-version", odd).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("word", "verdict"),
    [("Enabled", Verdict.OK), ("Disabled", Verdict.WARN), ("N/A", Verdict.UNKNOWN)],
)
def test_persistence_mode_should_be_on_for_gpunetio(word: str, verdict: Verdict) -> None:
    made = h200({SMI: smi(persistence=word)})
    (found,) = judge("driver-persistence", made, goal=Goal.GPUNETIO)
    assert found.verdict is verdict
    otherwise = Verdict.OK if verdict is Verdict.WARN else verdict
    assert one("driver-persistence", made).verdict is otherwise
    if verdict is Verdict.WARN:
        assert "sudo nvidia-smi -pm 1" in found.remedy


def test_a_command_that_hangs_leaves_persistence_open_and_says_so() -> None:
    found = one("driver-persistence", h200({SMI: LATE}))
    assert found.verdict is Verdict.UNKNOWN
    assert LATE.why in found.why


def test_gpus_that_are_alike_share_a_finding_and_others_do_not() -> None:
    pair = ("00000000:17:00.0", "00000000:CA:00.0")
    (alike,) = judge("driver-persistence", h200({SMI: smi(addresses=pair)}))
    assert alike.subject == "all 2 GPUs"
    text = smi(addresses=pair)
    at = text.rindex("Enabled")
    made = h200({SMI: f"{text[:at]}Disabled{text[at + 7 :]}"})
    mixed = judge("driver-persistence", made, goal=Goal.GPUNETIO)
    assert {f.subject: f.verdict for f in mixed} == {
        "GPU 0 (0000:17:00.0)": Verdict.OK,
        f"GPU 1 ({ADDRESS})": Verdict.WARN,
    }


SET = 'RegistryDwords: "PeerMappingOverride=1;"\n'


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({PARAMS: SET}, Verdict.OK),
        ({PARAMS: 'RegistryDwords: ""\n'}, Verdict.WARN),
        ({PARAMS: 'RegistryDwords: "PeerMappingOverride=0;"\n'}, Verdict.WARN),
        ({PARAMS: DENIED}, Verdict.UNKNOWN),
        ({PARAMS: 'RegistryDwords: ""\n', "ask euid": 0}, Verdict.NOT_APPLICABLE),
        ({}, Verdict.NOT_APPLICABLE),
    ],
)
def test_use_without_root_needs_the_registry_key(
    readings: dict[str, object], verdict: Verdict
) -> None:
    found = one("driver-registry", h200({"ask euid": 1000, **readings}), Goal.GPUNETIO)
    assert found.verdict is verdict


def test_a_key_that_is_written_but_not_in_force_is_not_written_again() -> None:
    conf = 'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"\n'
    known = {PARAMS: 'RegistryDwords: ""\n', "ask euid": 1000}
    written = h200({**known, "text /etc/modprobe.d/nvidia.conf": conf})
    image, restart = one("driver-registry", written, Goal.GPUNETIO).remedy
    assert image == "sudo update-initramfs -u"  # where nvidia is in the image, it counts there
    assert restart.startswith("#")
    command, *rest = one("driver-registry", h200(known), Goal.GPUNETIO).remedy
    assert conf.strip() in command
    assert rest == [image, restart]


def test_registry_keys_that_are_set_already_are_kept() -> None:
    known = {PARAMS: 'RegistryDwords: "RmX=0x2;PeerMappingOverride=0;"\n', "ask euid": 1000}
    command = one("driver-registry", h200(known), Goal.GPUNETIO).remedy[0]
    assert 'NVreg_RegistryDwords="RmX=0x2;PeerMappingOverride=1;"' in command


def test_other_goals_do_not_ask_for_the_registry_key() -> None:
    found = one("driver-registry", h200({PARAMS: SET}), Goal.RDMA)
    assert (found.verdict, found.needed) == (Verdict.NOT_APPLICABLE, "--goal gpunetio")


def test_modules_in_use_by_others_do_not_make_the_driver() -> None:
    other = with_gpu({"text /proc/modules": MODULES.replace("nvidia 1", "nvidia_fs 1")})
    assert one("driver-loaded", other).verdict is Verdict.FAIL


def test_gpus_that_a_container_was_not_given_are_named_once_and_judged_by_no_check() -> None:
    bus = {"names /sys/bus/pci/devices": (ADDRESS, "0000:17:00.0")}
    for key in ("uevent", "numa_node"):
        bus[f"text /sys/bus/pci/devices/0000:17:00.0/{key}"] = {
            "uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2335\n",
            "numa_node": "0\n",
        }[key]
    bus["link /sys/bus/pci/devices/0000:17:00.0"] = "/sys/devices/pci0000:10/0000:17:00.0"
    some = h200(bus)
    found = one("gpu-present", some)
    assert (found.verdict, found.found) == (Verdict.WARN, "NVIDIA H200, of 2")
    assert "0000:17:00.0" in found.why
    assert one("driver-persistence", some).subject == f"GPU 0 ({ADDRESS})"
