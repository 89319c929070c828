# SPDX-License-Identifier: Apache-2.0
"""nvidia-peermem: needed only where there is no dma-buf."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, load
from support.doctor.gpus import CLOSED, MODULES, NO_MODULE, h200, h200_and_nic, smi, with_gpu
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

VERSION, LIST = "text /proc/driver/nvidia/version", "text /proc/modules"
MODINFO = "run modinfo -F filename nvidia-peermem"
FILE = "/lib/modules/6.8.0-45-generic/updates/dkms/nvidia-peermem.ko\n"
CORE = "ib_core 524288 3 mlx5_ib, Live 0x0\n"
PEERMEM = "nvidia_peermem 16384 0 - Live 0x0 (OE)\n"


def one(on: Machine) -> Finding:
    (found,) = judge("peermem", on)
    return found


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({LIST: MODULES + PEERMEM}, Verdict.OK),
        ({LIST: MODULES + "nv_peer_mem 16384 0 - Live 0x0 (OE)\n"}, Verdict.OK),
        ({MODINFO: FILE}, Verdict.NOT_APPLICABLE),
        ({}, Verdict.NOT_APPLICABLE),
        ({VERSION: CLOSED, LIST: MODULES + PEERMEM}, Verdict.OK),
        ({VERSION: CLOSED, MODINFO: FILE}, Verdict.FAIL),
        ({VERSION: CLOSED, MODINFO: NO_MODULE}, Verdict.FAIL),
        ({VERSION: CLOSED}, Verdict.UNKNOWN),
        ({VERSION: Reading(fault="denied", why="root"), MODINFO: FILE}, Verdict.UNKNOWN),
    ],
)
def test_it_counts_only_where_there_is_no_dma_buf(
    readings: dict[str, object], verdict: Verdict
) -> None:
    assert one(h200_and_nic(readings)).verdict is verdict


def test_a_module_that_can_be_loaded_is_and_needs_ib_core() -> None:
    alone = one(h200_and_nic({VERSION: CLOSED, MODINFO: FILE}))
    assert "ib_core" in alone.why
    assert alone.remedy.index("sudo modprobe nvidia-peermem") > 0
    beside = one(h200_and_nic({VERSION: CLOSED, MODINFO: FILE, LIST: MODULES + CORE}))
    assert "ib_core" not in beside.why
    assert beside.remedy[0] == "sudo modprobe nvidia-peermem"


def test_an_installed_module_of_an_old_driver_is_loaded_and_not_built_again() -> None:
    found = one(load(FOLDER / "communication" / "nv-peer-46-boot.txt").machine())
    assert found.found == "installed, not loaded"
    assert found.remedy[0] == "sudo modprobe nv_peer_mem"
    assert "/etc/modules-load.d/" in found.remedy[1]
    assert not any("nvidia-peermem" in line for line in found.remedy)


def test_it_is_not_advised_for_nics_of_other_vendors() -> None:
    found = one(load(FOLDER / "communication" / "pplx-4-kernel.txt").machine())
    assert found.verdict is Verdict.FAIL
    assert not any("nvidia-peermem" in line or "ofed" in line for line in found.remedy)


def test_kernels_of_other_distributions_need_an_ofed_too() -> None:
    red_hat = {"text /etc/os-release": "ID=rhel\n", **linux("5.14.0-503.el9.x86_64")}
    found = one(h200_and_nic({**UBUNTU, **red_hat, MODINFO: FILE}))
    assert found.remedy[0] == "sudo dnf install doca-ofed"
    assert "linux-nvidia" not in "\n".join(found.remedy)


UBUNTU = {"text /etc/os-release": "ID=ubuntu\n", LIST: MODULES + CORE, VERSION: CLOSED}


def linux(release: str) -> dict[str, object]:
    return {"ask uname": {**UNAME, "release": release}}


@pytest.mark.parametrize("state", [FILE, NO_MODULE])
def test_ubuntus_newer_kernels_need_an_ofed_first_and_documents_disagree(state: object) -> None:
    found = one(h200_and_nic({**UBUNTU, **linux("6.8.0-51-generic"), MODINFO: state}))
    assert found.verdict is Verdict.FAIL
    assert found.remedy[0] == "sudo apt install doca-ofed"
    assert "linux-nvidia" in "\n".join(found.remedy)
    assert found.remedy.index("sudo modprobe nvidia-peermem") == 2
    assert "6.8" in found.disagree


@pytest.mark.parametrize(
    "more",
    [
        linux("6.5.0-45-generic"),
        linux("6.8.0-1021-nvidia"),
        {**linux("6.8.0-51-generic"), "run ofed_info -s": "OFED-internal-24.10-0.7.0:\n"},
        {**linux("6.8.0-51-generic"), "text /sys/module/mlx5_core/version": "24.10-0.7.0\n"},
        {**linux("6.8.0-51-generic"), "text /etc/os-release": ""},
        {**linux("6.8.0-51-generic"), "run ofed_info -s": Reading(fault="late", why="no answer")},
    ],
)
def test_other_kernels_load_it_as_it_is(more: dict[str, object]) -> None:
    found = one(h200_and_nic({**UBUNTU, MODINFO: FILE, **more}))
    assert found.remedy[0] == "sudo modprobe nvidia-peermem"


def test_machines_without_gpudirect_a_gpu_or_a_driver_are_not_asked() -> None:
    spark = h200_and_nic({"run nvidia-smi -q": smi("NVIDIA GB10")})
    for on in (spark, with_gpu(), machine({})):
        assert one(on).verdict is Verdict.NOT_APPLICABLE


PEERS = "names /sys/kernel/mm/memory_peers"
DEPENDS = "run modinfo -F depends nvidia-peermem"
USED = "ib_core 524288 4 nvidia_peermem,mlx5_ib, Live 0x0\n"


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({LIST: MODULES + PEERMEM + CORE}, Verdict.FAIL),
        ({LIST: MODULES + PEERMEM + USED}, Verdict.OK),
        ({LIST: MODULES + PEERMEM, PEERS: ["amdkfd"]}, Verdict.FAIL),
        ({LIST: MODULES + PEERMEM + CORE, PEERS: ["nv_mem"]}, Verdict.OK),
        # later kernels register it without the folder, and some list no users
        ({LIST: MODULES + PEERMEM + "ib_core 524288 - - Live 0x0\n"}, Verdict.OK),
    ],
)
def test_a_module_that_ib_core_does_not_know_registers_nothing(
    readings: dict[str, object], verdict: Verdict
) -> None:
    found = one(h200_and_nic({VERSION: CLOSED, **readings}))
    assert found.verdict is verdict
    assert ("registered" in found.found) == (verdict is Verdict.FAIL)
    with_dma_buf = one(h200_and_nic(readings))
    assert with_dma_buf.verdict in (Verdict.OK, Verdict.NOT_APPLICABLE)


REFUSED = "[1] nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)\n"


@pytest.mark.parametrize(
    ("readings", "text"),
    [
        ({"run dmesg": f"[0] Linux\n{REFUSED}"}, "refused by ib_core (err -22)"),
        ({DEPENDS: "nvidia\n"}, "built without ib_core"),
        ({DEPENDS: "nvidia,ib_core\n"}, "installed, not loaded"),
        ({DEPENDS: ""}, "installed, not loaded"),
        ({"run dmesg": Reading(code=1, said="dmesg: read kernel buffer failed")}, "installed"),
    ],
)
def test_why_modprobe_refuses_it_is_said_where_it_can_be_seen(
    readings: dict[str, object], text: str
) -> None:
    module = {VERSION: CLOSED, MODINFO: FILE, LIST: MODULES + CORE, **UBUNTU}
    found = one(h200_and_nic({**module, **linux("5.15.0-91-generic"), **readings}))
    assert found.verdict is Verdict.FAIL
    assert text in found.found
    rebuilt = any("Reinstall NVIDIA's driver" in line for line in found.remedy)
    assert rebuilt == (text not in "installed, not loaded")


def test_a_machine_without_a_nic_gets_no_drivers_of_one() -> None:
    found = one(h200({VERSION: CLOSED, MODINFO: FILE}))
    assert (found.verdict, found.remedy) == (Verdict.NOT_APPLICABLE, ())
    assert found.found == "no NIC or DPU that would use it"


def test_devices_that_were_not_read_are_no_missing_nic() -> None:
    unread = {"names /sys/bus/pci/devices": Reading(fault="denied", why="no permission")}
    module = {"run nvidia-smi -q": smi(), VERSION: CLOSED, MODINFO: FILE}
    assert one(machine({**module, **unread})).verdict is Verdict.UNKNOWN
