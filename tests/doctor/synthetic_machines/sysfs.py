# SPDX-License-Identifier: Apache-2.0
"""A tree's functions as sysfs shows them (Linux, Documentation/ABI/testing/sysfs-bus-pci)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.synthetic_machines.config_space import INTEGRATED, MIB, Function, config
from doctor.synthetic_machines.kinds import GIB, PREFETCHABLE
from doctor.synthetic_machines.tree import Node

from dgkit.doctor.collect.reader import Reading

DEVICES = "/sys/bus/pci/devices"
SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
# What a port can do, and what a BIOS with ACS on sets: SV, RR, CR and UF (PCIe base, 7.7.11).
ACS_CAN, ACS_ON = 0x005F, 0x001D
_SIZES = {"M": MIB, "G": GIB}


def size(word: str) -> int:
    """`256M`, `128G`"""
    return int(word[:-1]) * _SIZES[word[-1]]


def window(node: Node) -> int:
    """The size of BAR1, of a GPU."""
    if "bar1" in node.words:
        return size(node.words["bar1"])
    return next((one for number, one, _ in node.kind.bars if number == 1), 0)


def pci(nodes: list[Node], *, root: bool = True, iommu: str = "") -> dict[str, object]:
    """All files of all functions. `root`: who reads may see the whole configuration space.

    `iommu`: the type of the groups, `DMA-FQ` or `identity`, "" if there are none.
    """
    made: dict[str, object] = {f"names {DEVICES}": [one.address for one in nodes]}
    at = 0x2000_0000_0000
    for group, node in enumerate(nodes):
        folder = f"{DEVICES}/{node.address}"
        made[f"link {folder}"] = "/sys/devices/" + "/".join(node.path)
        regions, at = _regions(node, at)
        if node.kind.is_gpu:  # no check reads those of other devices
            made[f"text {folder}/resource"] = _resource(regions)
        if node.kind.is_gpu or node.kind.is_bridge:
            space = config(_function(node, nodes, regions))
            made[f"raw {folder}/config"] = space[: None if root else 64]
        made.update(_texts(node, folder))
        if iommu:
            made[f"link {folder}/iommu_group"] = f"/sys/kernel/iommu_groups/{group}"
            made[f"text /sys/kernel/iommu_groups/{group}/type"] = f"{iommu}\n"
    return made


def _texts(node: Node, folder: str) -> dict[str, str]:
    kind = node.kind
    driver = node.words.get("driver", kind.driver)
    lines = [f"DRIVER={driver}"] if driver else []
    lines += [
        f"PCI_CLASS={kind.code:X}",
        f"PCI_ID={kind.vendor:04X}:{kind.device:04X}",
        f"PCI_SUBSYS_ID={kind.vendor:04X}:0000",
        f"PCI_SLOT_NAME={node.address}",
    ]
    made = {
        "uevent": "\n".join(lines),
        "numa_node": str(node.numa),
    }
    if kind.is_gpu or kind.rdma:
        made["local_cpulist"] = node.cpus
    if kind.express is not None and kind.express != INTEGRATED:
        most = node.at_most
        made |= {
            "current_link_speed": _speed(node.now.gen),
            "current_link_width": str(node.now.lanes),
            "max_link_speed": _speed(most.gen),
            "max_link_width": str(most.lanes),
        }
    return {f"text {folder}/{name}": f"{value}\n" for name, value in made.items()}


def _speed(gen: int) -> str:
    return f"{SPEEDS[gen]} GT/s PCIe" if gen else "Unknown"


def _regions(node: Node, at: int) -> tuple[dict[int, tuple[int, int, int]], int]:
    """BARs: first byte, last byte, flags; and where the next function's go."""
    found = {}
    for number, length, flags in node.kind.bars:
        if number == 1 and node.kind.is_gpu:
            length = window(node)
        first = (
            -(-at // length) * length if flags == PREFETCHABLE else 0x9000_0000 + at % 0x1000_0000
        )
        found[number] = (first, first + length - 1, flags)
        at = first + length if flags == PREFETCHABLE else at + length
    return found, at


def _resource(regions: Mapping[int, tuple[int, int, int]]) -> str:
    rows = (regions.get(number, (0, 0, 0)) for number in range(13))
    return "".join(f"0x{first:016x} 0x{last:016x} 0x{flags:016x}\n" for first, last, flags in rows)


def _function(
    node: Node, nodes: Iterable[Node], regions: Mapping[int, tuple[int, int, int]]
) -> Function:
    kind, words = node.kind, node.words
    slot = node.address.rpartition(".")[0]
    acs = (ACS_CAN, int(words["acs"] or str(ACS_ON), 0) if "acs" in words else 0)
    bars = tuple(
        (number, first | (0xC if flags == PREFETCHABLE else 0))
        for number, (first, _, flags) in regions.items()
    )
    sizes = tuple(size(word) for word in words.get("rebar", "").split(",") if word)
    return Function(
        kind.vendor,
        kind.device,
        kind.code,
        kind.express,
        node.at_most,
        node.now,
        buses=node.buses,
        many=sum(one.address.startswith(f"{slot}.") for one in nodes) > 1,
        bars=bars,
        acs=acs if kind.express in (4, 6) and "noacs" not in words else None,
        rebar=(sizes, window(node)) if sizes else None,
        serial=0 if kind.is_bridge or not kind.is_gpu else 0x48B0_2D00_0000_0001,
    )


def nodes_of_system(nodes: Iterable[Node]) -> dict[str, object]:
    """/sys/devices/system/node, out of what host bridges name; one node if they name none."""
    folder = "/sys/devices/system/node"
    cpus = {max(node.numa, 0): node.cpus for node in nodes} or {0: ""}
    made: dict[str, object] = {f"text {folder}/online": ",".join(map(str, sorted(cpus))) + "\n"}
    made |= {f"text {folder}/node{number}/cpulist": f"{text}\n" for number, text in cpus.items()}
    return made


def fault(kind: str, why: str) -> Reading:
    """A look that gave nothing."""
    return Reading(fault=kind, why=why)  # type: ignore[arg-type]
