# SPDX-License-Identifier: Apache-2.0
"""Topology class of two PCI devices, and the PCIe tree for a drawing.

The classes are those in the legend of `nvidia-smi topo -m`, which the GPUNetIO guide quotes. Other
definitions:

- NVML (nvmlDeviceGetTopologyCommonAncestor) has the same levels under other names: SINGLE,
  MULTIPLE, HOSTBRIDGE, NODE, SYSTEM. Its source is not public. In published outputs a switch counts
  once, whichever of its ports a device is connected to; this module does the same.
- NCCL 1 compared the sysfs paths from the first device's view, so that PIX and PXB could depend on
  the order. NCCL 2 merges the ports of a switch, calls any path between two switches PXB, and has
  no NODE: its CPUs are NUMA nodes, so that NODE here is PHB there (NVIDIA/nccl,
  src/graph/paths.cc, ncclTopoSetPaths).
- hwloc has no classes: the common ancestor is a bridge, a host bridge, a NUMA node or the machine
  (hwloc_get_common_ancestor_obj), which are the same levels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

import msgspec

from ..machine import Machine
from . import nvidia_proc
from .config_space import DOWNSTREAM, ROOT_PORT, UPSTREAM
from .pci import PciTree, is_host_bridge

PARAMS, OVERRIDE = "/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride"


class Near(IntEnum):
    """Topology class of two devices, ordered from near to far."""

    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5

    def __str__(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        """Components between the two devices, as text."""
        return _TEXTS[self]


_TEXTS = {
    Near.PIX: "one PCIe switch at most",
    Near.PXB: "several PCIe switches",
    Near.PHB: "one PCIe host bridge (the CPU)",
    Near.NODE: "two host bridges of a NUMA node",
    Near.SYS: "two CPU sockets or NUMA nodes",
}


class Path(msgspec.Struct, frozen=True):
    """Path between the devices `a` and `b`.

    Attributes:
        near: Topology class; if it is uncertain, the worst possible class.
        bridges: Addresses of the ports on the path, in order from `a` to `b`.
        switches: The upstream ports among them, one per switch.
        common: Common ancestors, from the host bridge down.
        why: Reason why `near` is uncertain, "" if it is certain.
    """

    a: str
    b: str
    near: Near
    bridges: tuple[str, ...]
    switches: tuple[str, ...]
    common: tuple[str, ...]
    why: str = ""


def path(tree: PciTree, a: str, b: str) -> Path:
    """Return the path between two devices of the tree, given by address.

    Raises:
        KeyError: An address is not in the tree.
    """
    first, second = tree.devices[a], tree.devices[b]
    shared = 0
    while shared < min(len(first.path), len(second.path)) - 1:
        if first.path[shared] != second.path[shared]:
            break
        shared += 1
    common = first.path[:shared]
    inside = bool(common) and not is_host_bridge(common[-1])
    inside &= not any(map(is_host_bridge, (*first.path[shared:], *second.path[shared:])))
    up = _ports(first.path[shared:-1])[::-1]
    down = _ports(second.path[shared:-1])
    bridges = (*up, *common[-1:], *down) if inside else (*up, *down)
    if first.slot == second.slot:  # functions of one card
        return Path(a, b, Near.PIX, (), (), common)
    switches = tuple(part for part in bridges if tree.port(part) == UPSTREAM)
    if inside:
        near = Near.PIX if len(switches) < 2 else Near.PXB
        return Path(a, b, near, bridges, switches, common)
    near, why = _near(tree, a, b, common)
    return Path(a, b, near, bridges, switches, common, why)


def _ports(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the components below the last host bridge, which may be below another, as with VMD."""
    last = max((at for at, part in enumerate(parts) if is_host_bridge(part)), default=-1)
    return parts[last + 1 :]


def _near(tree: PciTree, a: str, b: str, common: tuple[str, ...]) -> tuple[Near, str]:
    """Return the class of two devices without a common switch, and why it is uncertain."""
    if common:
        return Near.PHB, ""
    lost = [address for address in (a, b) if not tree.host_bridge(address)]
    if lost:
        return Near.SYS, f"sysfs does not contain the host bridge of {' and '.join(lost)}"
    nodes = tree.numa(a), tree.numa(b)
    if min(nodes) >= 0:
        return (Near.NODE if nodes[0] == nodes[1] else Near.SYS), ""
    if len(tree.nodes) == 1:
        return Near.NODE, ""
    without = " and ".join(address for address, node in zip((a, b), nodes, strict=True) if node < 0)
    return Near.SYS, f"the system reports no NUMA node for {without}"


def one_bridge(path: Path) -> str:
    """Describe whether the devices are below one PCIe bridge, and whether they need to be."""
    place = {
        Near.PIX: "They are: at most one PCIe switch is between them.",
        Near.PXB: f"They are: {len(path.switches)} PCIe switches are between them, no host bridge.",
        Near.PHB: f"They are not, but one host bridge, {(*path.common, '?')[0]}, joins them.",
        Near.NODE: "They are not: they are below two host bridges of one NUMA node.",
        Near.SYS: "They are not: they are on different CPU sockets or NUMA nodes.",
    }[path.near]
    if path.why:
        place = f"Whether they are is unknown: {path.why}."
    need = {
        Near.PIX: "That is the best placement.",
        Near.PXB: "That is as good as one switch.",
        Near.PHB: "They need not be: it works; the speed depends on the platform.",
    }.get(
        path.near,
        "NVIDIA's GPUNetIO guide says that it works and is slower; its GPUDirect RDMA guide asks "
        "for one root complex. If it is slow or fails, move one of them, where that is a card.",
    )
    return f"{place} {need}"


class Node(msgspec.Struct, frozen=True):
    """Node of a drawing.

    Attributes:
        id: For a device its address, for a switch the address of its upstream port, for a host
            bridge `pci0000:b0`, for a socket `numa0`.
        kind: socket, host bridge, root port, switch, gpu, nic, dpu or other.
        label: Text of the node.
        numa: NUMA node, -1 if unknown.
        parent: Id of the node above, "" for a socket.
    """

    id: str
    kind: str
    label: str
    numa: int
    parent: str


def drawing(tree: PciTree) -> tuple[Node, ...]:
    """Return GPUs, NICs, DPUs and their ancestors, parents first, without virtual functions.

    All ports of a switch are drawn as one node.
    """
    nodes: dict[str, Node] = {}
    for device in sorted((*tree.gpus, *tree.nics), key=lambda device: device.address):
        if not device.physfn:
            for node in _chain(tree, device.address):
                nodes.setdefault(node.id, node)
    return tuple(sorted(nodes.values(), key=lambda node: node.kind != "socket"))


def _chain(tree: PciTree, address: str) -> Iterator[Node]:
    """Yield the nodes from the socket to a device."""
    numa = _socket(tree, address)
    parent = f"numa{numa}" if numa >= 0 else "numa?"
    label = f"CPU, NUMA node {numa}" if numa >= 0 else "CPU, NUMA node unknown"
    yield Node(parent, "socket", label, numa, "")
    for part in (*tree.above(address), address):
        kind = _kind_of(tree, part)
        if kind is None:  # a downstream port, part of the switch's node
            continue
        yield Node(part, kind, _label_of(tree, part, kind), numa, parent)
        parent = part


def _socket(tree: PciTree, address: str) -> int:
    """Return the NUMA node of a device's host bridge, taken from the first device below it."""
    top = tree.devices[address].path[0]
    devices = tree.devices.values()
    nodes = (device.numa for device in devices if device.path[0] == top and device.numa >= 0)
    return next(nodes, tree.nodes[0] if len(tree.nodes) == 1 else -1)


def _kind_of(tree: PciTree, part: str) -> str | None:
    if is_host_bridge(part):
        return "host bridge"
    device = tree.devices.get(part)
    if device is not None and (device.is_gpu or device.is_nic):
        return "gpu" if device.is_gpu else "dpu" if device.bluefield else "nic"
    kinds = {ROOT_PORT: "root port", UPSTREAM: "switch", DOWNSTREAM: None}
    return kinds.get(tree.port(part), "other")


def _label_of(tree: PciTree, part: str, kind: str) -> str:
    if kind in ("host bridge", "root port", "switch"):
        return f"{kind} {part.removeprefix('pci')}"
    device = tree.devices.get(part)
    return f"{device.name} {part}" if device is not None else part


def route(tree: PciTree, path: Path) -> tuple[str, ...]:
    """Return the ids of the drawing's nodes on a path from `a` to `b`, including both ends."""
    first, second = ([node.id for node in _chain(tree, end)] for end in (path.a, path.b))
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    turn = first[shared - 1 : shared] if shared else []
    found = (*first[shared:][::-1], *turn, *second[shared:])
    return tuple(dict.fromkeys(found))


def override(machine: Machine) -> str:
    """Return the driver parameter that overrides its own topology check; "" if unknown.

    0: the driver checks the topology. 1: it allows all devices to access GPU memory. Other values
    forbid access (open-gpu-kernel-modules, nvidia/nv-pci.c).
    """
    return nvidia_proc.key_values(machine.read.text(PARAMS).text).get(OVERRIDE, "")


def is_intel_client(machine: Machine) -> bool:
    """Return whether the CPU is an Intel CPU for desktops or notebooks, not a Xeon."""
    text = machine.read.text("/proc/cpuinfo").text
    vendor = re.search(r"^vendor_id\s*:\s*GenuineIntel", text, re.MULTILINE)
    model = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return bool(vendor and model and re.search(r"\bCore\b", model[1].replace("(TM)", " ")))


def is_first_qpi(machine: Machine) -> bool:
    """Return whether the CPUs are Xeon E5 or E7 of 2012 to 2014, which forward PCIe to QPI slowly.

    NVIDIA GPUDirect RDMA, Supported Systems: between their sockets, the throughput is much reduced
    or the platform malfunctions. Xeon E5-2670 0 is the first generation, v2 is the second.
    """
    text = machine.read.text("/proc/cpuinfo").text
    return bool(
        re.search(r"^model name\s*:.*\bXeon.*\bE[57]-\d+\w* (?:0|v2)\b", text, re.MULTILINE)
    )
