# SPDX-License-Identifier: Apache-2.0
"""Machines for the doctor's panel and its drawing: snapshots of PCIe trees from a few paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.doctor.machines import UNAME, reading

from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.machine import Machine

DEVICES = "/sys/bus/pci/devices"
# Name: PCI number, class, driver.
KINDS = {
    "gpu": ("10DE:2331", "30200", "nvidia"),
    "nic": ("15B3:1021", "20000", "mlx5_core"),
    "bf3": ("15B3:A2DC", "20000", "mlx5_core"),
    "port": ("8086:347A", "60400", "pcieport"),
}


def pcie(paths: Mapping[str, tuple[str, int]]) -> dict[str, object]:
    """Return the readings of a PCIe tree, such as `{"b0/b0:02.0/b1:00.0": ("gpu", 1)}`.

    A path leads from a host bridge down to a device, through bridges; its value is the device's
    kind and NUMA node.
    """
    found: dict[str, object] = {}
    names: set[str] = set()
    nodes = {numa for _, numa in paths.values() if numa >= 0}
    for line, (kind, numa) in paths.items():
        bus, *parts = line.split("/")
        at = f"/sys/devices/pci0000:{bus}"
        for part in parts:
            address = f"0000:{part}"
            at, folder = f"{at}/{address}", f"{DEVICES}/{address}"
            number, code, driver = KINDS[kind if part == parts[-1] else "port"]
            said = f"DRIVER={driver}\nPCI_CLASS={code}\nPCI_ID={number}\nPCI_SUBSYS_ID={number}\n"
            names.add(address)
            found[f"link {folder}"] = at
            found[f"text {folder}/uevent"] = said
            found[f"text {folder}/numa_node"] = f"{numa}\n"
            found[f"text {folder}/current_link_speed"] = "16.0 GT/s PCIe\n"
            found[f"text {folder}/current_link_width"] = "8\n"
            found[f"text {folder}/max_link_speed"] = "32.0 GT/s PCIe\n"
            found[f"text {folder}/max_link_width"] = "16\n"
    found[f"names {DEVICES}"] = sorted(names)
    found["text /sys/devices/system/node/online"] = ",".join(map(str, sorted(nodes))) + "\n"
    return found


# One switch with a GPU and a BlueField-3 of two ports; a second host bridge; a second socket.
SMALL = {
    "17/17:01.0/18:00.0/19:00.0/1a:00.0": ("gpu", 0),
    "17/17:01.0/18:00.0/19:01.0/1b:00.0": ("bf3", 0),
    "17/17:01.0/18:00.0/19:01.0/1b:00.1": ("bf3", 0),
    "17/17:03.0/1d:00.0": ("nic", 0),
    "2a/2a:01.0/2b:00.0": ("gpu", 0),
    "b0/b0:01.0/b1:00.0": ("gpu", 1),
}
GPU, DPU, NIC, SAME_SOCKET, FAR = (f"0000:{one}:00.0" for one in ("1a", "1b", "1d", "2b", "b1"))


def large() -> dict[str, tuple[str, int]]:
    """Return eight GPUs and ten NICs, laid out as in a DGX H100.

    There are four switches, each with two GPUs and two NICs, and two NICs at root ports.
    """
    found = {}
    for at in range(4):
        bus, numa = 0x10 + 0x20 * at, at // 2
        below = f"{bus:02x}/{bus:02x}:01.0/{bus + 1:02x}:00.0"
        for port, kind in enumerate(("gpu", "gpu", "nic", "nic")):
            end = f"{bus + 2:02x}:{port:02x}.0/{bus + 3 + port:02x}:00.0"
            found[f"{below}/{end}"] = (kind, numa)
    found["a0/a0:01.0/a1:00.0"] = ("bf3", 0)
    found["c0/c0:01.0/c1:00.0"] = ("bf3", 1)
    return found


def snapshot(paths: Mapping[str, tuple[str, int]], **more: object) -> Snapshot:
    """Return the snapshot of a synthetic machine with that tree."""
    made = {"ask uname": {**UNAME, "release": "5.15.0-25-generic"}, **pcie(paths), **more}
    answers = {key: reading(key, value) for key, value in made.items()}
    return Snapshot(source="synthetic: a test's machine", otherwise="absent", readings=answers)


def machine(paths: Mapping[str, tuple[str, int]], **more: object) -> Machine:
    """Return the same machine as the doctor sees it."""
    return Machine(RecordedReader(snapshot(paths, **more)), "test.snap")


def saved(folder: Path, paths: Mapping[str, tuple[str, int]] = SMALL, name: str = "test") -> Path:
    """Save the same snapshot in a file, and return its path."""
    path = folder / f"{name}.snap"
    snapshot(paths).save(path)
    return path
