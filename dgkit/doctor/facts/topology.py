"""How near two PCI devices are to each other, and the tree as a drawing needs it.

The classes are those of the legend of `nvidia-smi topo -m`, which the GPUNetIO guide quotes. How
others decide:

- NVML (nvmlDeviceGetTopologyCommonAncestor) has the same steps under other names: SINGLE, MULTIPLE,
  HOSTBRIDGE, NODE, SYSTEM. Its code is not public. In published outputs a switch counts once,
  whichever of its ports a device hangs on; that is followed here.
- NCCL 1 compared the sysfs paths of both, seen from the first of them, so its PIX and PXB could
  depend on which that was. NCCL 2 merges the ports of a switch, calls a path PXB as soon as it goes
  from switch to switch, and has no NODE: a CPU is a NUMA node there, so that what is NODE here is
  PHB (NVIDIA/nccl, src/graph/paths.cc, ncclTopoSetPaths).
- hwloc names no classes: its common ancestor is a bridge, a host bridge, a NUMA node or the machine
  (hwloc_get_common_ancestor_obj), which are the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from ..machine import Machine
from . import nvidia_proc
from .config_space import DOWNSTREAM, ROOT_PORT, UPSTREAM
from .pci import PciTree, is_host_bridge

__all__ = ["OVERRIDE", "Near", "Node", "Path", "drawing", "one_bridge", "override", "path", "route"]

PARAMS, OVERRIDE = "/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride"


class Near(IntEnum):
    """How near two devices are; the number is the rank, the nearest first."""

    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5

    def __str__(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        """What bytes pass between the two."""
        return _TEXTS[self]


_TEXTS = {
    Near.PIX: "one PCIe switch at most",
    Near.PXB: "several PCIe switches",
    Near.PHB: "one PCIe host bridge (the CPU)",
    Near.NODE: "two host bridges of a NUMA node",
    Near.SYS: "two CPU sockets or NUMA nodes",
}


class Path(msgspec.Struct, frozen=True):
    """Between the devices `a` and `b`.

    `bridges`: the addresses of the ports that are passed, in order from `a` to `b`; `switches`: of
    those, the upstream ports, one for each switch. `common`: the ancestors of both, from the host
    bridge down. `why`: why `near` is not sure, "" if it is; then it is the worst that it may be.
    """

    a: str
    b: str
    near: Near
    bridges: tuple[str, ...]
    switches: tuple[str, ...]
    common: tuple[str, ...]
    why: str = ""


def path(tree: PciTree, a: str, b: str) -> Path:
    """Between two devices of the tree, by their addresses. KeyError: there is no such device."""
    one, other = tree.devices[a], tree.devices[b]
    shared = 0
    while shared < min(len(one.path), len(other.path)) - 1:
        if one.path[shared] != other.path[shared]:
            break
        shared += 1
    common = one.path[:shared]
    inside = bool(common) and not is_host_bridge(common[-1])
    inside &= not any(map(is_host_bridge, (*one.path[shared:], *other.path[shared:])))
    up = _ports(one.path[shared:-1])[::-1]
    down = _ports(other.path[shared:-1])
    bridges = (*up, *common[-1:], *down) if inside else (*up, *down)
    if one.slot == other.slot:  # functions of one card
        return Path(a, b, Near.PIX, (), (), common)
    switches = tuple(part for part in bridges if tree.port(part) == UPSTREAM)
    if inside:
        near = Near.PIX if len(switches) < 2 else Near.PXB
        return Path(a, b, near, bridges, switches, common)
    near, why = _near(tree, a, b, common)
    return Path(a, b, near, bridges, switches, common, why)


def _ports(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Those below the last host bridge: what is above it is a bridge of its own, as VMD is."""
    last = max((at for at, part in enumerate(parts) if is_host_bridge(part)), default=-1)
    return parts[last + 1 :]


def _near(tree: PciTree, a: str, b: str, common: tuple[str, ...]) -> tuple[Near, str]:
    """For two that no switch joins; and why it is not sure."""
    if common:
        return Near.PHB, ""
    lost = [one for one in (a, b) if not tree.host_bridge(one)]
    if lost:
        return Near.SYS, f"sysfs does not say which host bridge {' and '.join(lost)} hangs on"
    first, second = tree.numa(a), tree.numa(b)
    if first >= 0 and second >= 0:
        return (Near.NODE if first == second else Near.SYS), ""
    if len(tree.nodes) == 1:
        return Near.NODE, ""
    without = " and ".join(one for one, node in ((a, first), (b, second)) if node < 0)
    return Near.SYS, f"the system names no NUMA node for {without}"


def one_bridge(path: Path) -> str:
    """The forum's question, of these two: need they be under one PCIe bridge? Are they?"""
    place = {
        Near.PIX: "They are: no more than one PCIe switch lies between them.",
        Near.PXB: f"They are: {len(path.switches)} PCIe switches lie between them, no host bridge.",
        Near.PHB: f"They are not, but one host bridge, {(*path.common, '?')[0]}, joins them.",
        Near.NODE: "They are not: they hang on two host bridges of one NUMA node.",
        Near.SYS: "They are not: they hang on different CPU sockets or NUMA nodes.",
    }[path.near]
    if path.why:
        place = f"It cannot be told whether they are: {path.why}."
    need = {
        Near.PIX: "That is the best place.",
        Near.PXB: "That is as good as one switch.",
        Near.PHB: "They need not be: it works, how fast depends on the platform.",
    }.get(
        path.near,
        "NVIDIA's GPUNetIO guide says that it works and is slower; its GPUDirect RDMA guide asks "
        "for one root complex. If it is slow or fails, move one of them, where that is a card.",
    )
    return f"{place} {need}"


class Node(msgspec.Struct, frozen=True):
    """Of a drawing. `kind`: socket, host bridge, root port, switch, gpu, nic, dpu or other.

    `id` is the address of a device; of a switch, its upstream port's; `pci0000:b0` of a host bridge
    and `numa0` of a socket. `parent` is the id of the node above, "" for sockets.
    """

    id: str
    kind: str
    label: str
    numa: int
    parent: str


def drawing(tree: PciTree) -> tuple[Node, ...]:
    """GPUs, NICs, DPUs and all above them, parents first; the ports of a switch are one node.

    Virtual functions are left out.
    """
    nodes: dict[str, Node] = {}
    for one in sorted((*tree.gpus, *tree.nics), key=lambda one: one.address):
        if not one.physfn:
            for node in _chain(tree, one.address):
                nodes.setdefault(node.id, node)
    return tuple(sorted(nodes.values(), key=lambda node: node.kind != "socket"))


def _chain(tree: PciTree, address: str) -> Iterator[Node]:
    """From the socket down to a device."""
    numa = _socket(tree, address)
    parent = f"numa{numa}" if numa >= 0 else "numa?"
    label = f"CPU, NUMA node {numa}" if numa >= 0 else "CPU, NUMA node unknown"
    yield Node(parent, "socket", label, numa, "")
    for part in (*tree.above(address), address):
        kind = _kind(tree, part)
        if kind is None:  # a downstream port: its switch is there already
            continue
        yield Node(part, kind, _label(tree, part, kind), numa, parent)
        parent = part


def _socket(tree: PciTree, address: str) -> int:
    """The NUMA node of a device's host bridge: that of the first below it which has one."""
    top = tree.devices[address].path[0]
    below = (one.numa for one in tree.devices.values() if one.path[0] == top and one.numa >= 0)
    return next(below, tree.nodes[0] if len(tree.nodes) == 1 else -1)


def _kind(tree: PciTree, part: str) -> str | None:
    if is_host_bridge(part):
        return "host bridge"
    known = tree.devices.get(part)
    if known is not None and (known.is_gpu or known.is_nic):
        return "gpu" if known.is_gpu else "dpu" if known.bluefield else "nic"
    kinds = {ROOT_PORT: "root port", UPSTREAM: "switch", DOWNSTREAM: None}
    return kinds.get(tree.port(part), "other")


def _label(tree: PciTree, part: str, kind: str) -> str:
    if kind in ("host bridge", "root port", "switch"):
        return f"{kind} {part.removeprefix('pci')}"
    known = tree.devices.get(part)
    return f"{known.name} {part}" if known is not None else part


def route(tree: PciTree, path: Path) -> tuple[str, ...]:
    """The ids of the drawing's nodes that bytes pass from `a` to `b`, in order, both ends too."""
    first, second = ([node.id for node in _chain(tree, end)] for end in (path.a, path.b))
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    turn = first[shared - 1 : shared] if shared else []
    found = (*first[shared:][::-1], *turn, *second[shared:])
    return tuple(dict.fromkeys(found))


def override(machine: Machine) -> str:
    """What NVIDIA's driver was told about its own test of the place; "" if that is not known.

    0: it tests; 1: it lets all devices to the GPU's memory; there is a value that forbids it all
    (open-gpu-kernel-modules, nvidia/nv-pci.c).
    """
    return nvidia_proc.colons(machine.read.text(PARAMS).text).get(OVERRIDE, "")
