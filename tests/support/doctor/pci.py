# SPDX-License-Identifier: Apache-2.0
"""PCI devices as readings of sysfs, and their configuration space as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

FOLDER = "/sys/bus/pci/devices"
GPU, NIC, BRIDGE = "30200", "20000", "60400"


class Dev(NamedTuple):
    """PCI device; `path` is below /sys/devices, from the host bridge on; `files` are more files."""

    path: str
    ids: str = "8086:352A"
    kind: str = BRIDGE
    numa: int = 0
    config: bytes = b""
    files: Mapping[str, str] = {}
    links: Mapping[str, str] = {}

    @property
    def address(self) -> str:
        return self.path.rpartition("/")[2]


def gpu(path: str, numa: int = 0, ids: str = "10DE:2330", **more: object) -> Dev:
    return Dev(path, ids, GPU, numa, **more)  # type: ignore[arg-type]


def nic(path: str, numa: int = 0, ids: str = "15B3:1021", **more: object) -> Dev:
    return Dev(path, ids, NIC, numa, **more)  # type: ignore[arg-type]


def dpu(path: str, numa: int = 0, ids: str = "15B3:A2DC", **more: object) -> Dev:
    return Dev(path, ids, NIC, numa, **more)  # type: ignore[arg-type]


def sysfs(
    devices: Iterable[Dev], *, nodes: str = "0-1", prefix: str = "/sys/devices"
) -> dict[str, object]:
    """Return the readings of a machine with these devices, and with the bridges in their paths."""
    all_of = {one.address: one for one in devices}
    for one in tuple(all_of.values()):
        parts = one.path.split("/")
        for at in range(1, len(parts) - 1):
            if not parts[at].startswith("pci"):
                all_of.setdefault(parts[at], Dev("/".join(parts[: at + 1]), numa=one.numa))
    found: dict[str, object] = {
        f"names {FOLDER}": sorted(all_of),
        "text /sys/devices/system/node/online": f"{nodes}\n",
    }
    for one in all_of.values():
        folder = f"{FOLDER}/{one.address}"
        found[f"link {folder}"] = f"{prefix}/{one.path}"
        found[f"text {folder}/uevent"] = f"PCI_CLASS={one.kind}\nPCI_ID={one.ids}\n"
        found[f"text {folder}/numa_node"] = f"{one.numa}\n"
        found |= {f"text {folder}/{name}": text for name, text in one.files.items()}
        found |= {f"link {folder}/{name}": to for name, to in one.links.items()}
        if one.config:
            found[f"raw {folder}/config"] = one.config
    return found


def config(
    *,
    port: int | None = None,
    acs: int | None = None,
    acs_can: int = 0x5F,
    lanes: tuple[int, int] = (16, 16),
    generation: tuple[int, int] = (5, 5),
    bars: Iterable[tuple[int, int, int]] = (),
    size: int = 4096,
) -> bytes:
    """Return a configuration space; `port` is the PCIe capability's type, `acs` its control word.

    `bars`: number, the mask of sizes (bit 0 is 1 MiB), and the exponent of the current size.
    """
    raw = bytearray(4096)

    def put(offset: int, number: int, width: int) -> None:
        raw[offset : offset + width] = number.to_bytes(width, "little")

    put(0, 0x352A8086, 4)
    if port is not None:
        put(6, 0x10, 2)
        put(0x34, 0x40, 1)
        put(0x40, 0x01 | 0x60 << 8, 2)  # power management, then PCIe
        put(0x60, 0x10, 2)
        put(0x62, 2 | port << 4, 2)
        put(0x60 + 0xC, generation[0] | lanes[0] << 4, 4)
        put(0x60 + 0x12, generation[1] | lanes[1] << 4, 2)
    at, last = 0x100, 0
    if acs is not None:
        put(at, 0x0D | 1 << 16, 4)
        put(at + 4, acs_can, 2)
        put(at + 6, acs, 2)
        at, last = at + 0x10, at
    bars = tuple(bars)
    if bars:
        if last:
            put(last, 0x0D | 1 << 16 | at << 20, 4)
        put(at, 0x15 | 1 << 16, 4)
        for index, (number, mask, now) in enumerate(bars):
            put(at + 4 + 8 * index, (mask & (1 << 28) - 1) << 4, 4)
            count = len(bars) << 5 if index == 0 else 0
            put(at + 8 + 8 * index, number | count | now << 8 | mask >> 28 << 16, 4)
    return bytes(raw[:size])


# Readings of bare metal and of a virtual machine.
BARE = {"text /proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme sse2\n"}
GUEST = {"text /proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme sse2 hypervisor\n"}


def link(now: str, width: str, most: str = "32.0 GT/s PCIe", widest: str = "16") -> dict[str, str]:
    """Return the sysfs files of a PCIe link."""
    return {
        "current_link_speed": f"{now}\n",
        "current_link_width": f"{width}\n",
        "max_link_speed": f"{most}\n",
        "max_link_width": f"{widest}\n",
    }
