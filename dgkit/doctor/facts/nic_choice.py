# SPDX-License-Identifier: Apache-2.0
"""NICs of each GPU: the nearest one that is up, and those that NCCL and UCX take.

NCCL takes the NICs whose path has the highest bandwidth, and among these those of the nearest
class, in which two host bridges of one NUMA node (NODE here) are as near as one (PHB). GPUs that
share several such NICs take turns (NVIDIA/nccl, src/graph/topo.cc, ncclTopoGetLocal). A path has
the lowest bandwidth of its links at their maximum, of the port, and between sockets of a constant
by vendor (src/graph/topo.h). UCX takes for large messages at most two ports (UCX_MAX_RNDV_RAILS),
the fastest and nearest ones by a distance of its own (openucx/ucx, src/ucs/sys/topo).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from ..machine import Machine
from . import gpus, pci, rdma
from .link import PcieLink, links
from .rdma import RdmaDevice, RdmaPort
from .topology import Near, Path, path

_CLASS = "/sys/class/infiniband"
_GIDS = 16  # entries that are read: a port has up to 256
_RAILS, _RATIO = 2, 4  # UCX_MAX_RNDV_RAILS; a slower rail has a quarter of the bandwidth
_SOCKETS = {"AuthenticAMD": 16.0, "": 6.0}  # GB/s between sockets; "" is Arm
_XEON = ((143, 22.0), (85, 10.0), (0, 6.0))  # from this CPU model on: Sapphire Rapids, Skylake


class Gid(msgspec.Struct, frozen=True):
    """The GID that a connection uses.

    Attributes:
        index: Index in the port's table; -1 if none can be used here.
        kind: `RoCE v2`, `IB/RoCE v1`, "" if unknown.
        net: Its network interface, "" if unknown.
        here: Whether that is in this network namespace; None if unknown.
    """

    index: int = -1
    kind: str = ""
    net: str = ""
    here: bool | None = None

    @property
    def text(self) -> str:
        """Index, kind and network interface: `3, RoCE v2, ens1f0`."""
        if self.here is False:
            return f"none here ({self.net or 'other'} is in another namespace)"
        if self.index < 0:
            return "unknown"
        return ", ".join(part for part in (str(self.index), self.kind, self.net) if part)


class Nic(msgspec.Struct, frozen=True):
    """A port of an RDMA device with a PCI function.

    Attributes:
        device: Name: mlx5_0.
        port: Number of the port.
        address: PCI address.
        state: ACTIVE, DOWN, ...
        layer: Ethernet or InfiniBand.
        gbits: Rate in Gb/s; 0 if unknown.
        link: Its PCIe link.
        gid: The GID that a connection uses; None for InfiniBand or a port that is down.
    """

    device: str
    port: int
    address: str
    state: str
    layer: str
    gbits: float
    link: PcieLink
    gid: Gid | None = None

    @property
    def up(self) -> bool:
        """True if the port has a link."""
        return self.state == "ACTIVE"

    @property
    def name(self) -> str:
        """`mlx5_0`, or `mlx5_0:2` for another port than the first."""
        return self.device if self.port == 1 else f"{self.device}:{self.port}"


class Choice(msgspec.Struct, frozen=True):
    """A GPU and its NICs.

    Attributes:
        gpu: Label of the GPU.
        address: Its PCI address.
        link: Its PCIe link.
        nic: The nearest NIC that is up; None if there is none.
        path: The path to it.
        down: Nearer NICs that are down.
        nccl: Names of the NICs that NCCL takes.
        ucx: Names of the ports that UCX takes.
        why: Why NCCL or UCX takes another one, sentences.
    """

    gpu: str
    address: str
    link: PcieLink
    nic: Nic | None
    path: Path | None
    down: tuple[str, ...] = ()
    nccl: tuple[str, ...] = ()
    ucx: tuple[str, ...] = ()
    why: str = ""


class _Reach(msgspec.Struct, frozen=True):
    """A NIC as seen from a GPU: path, and the bandwidth of the path in GB/s; 0 if unknown."""

    nic: Nic
    path: Path
    rate: float


def nics(machine: Machine) -> tuple[Nic, ...]:
    """Return the ports of RDMA devices that are PCI functions of this machine's tree."""
    tree = machine.know(pci.tree)
    known = [
        device for device in machine.know(rdma.devices).devices if device.address in tree.devices
    ]
    found = links(machine, [device.address for device in known])
    return tuple(
        _read_nic(machine, device, port, found[device.address])
        for device in known
        for port in device.ports
    )


def _read_nic(machine: Machine, device: RdmaDevice, port: RdmaPort, link: PcieLink) -> Nic:
    rate = re.match(r"\s*(\d{1,4}(?:\.\d)?) Gb/sec", port.rate)
    ethernet = port.link_layer == "Ethernet" and port.state == "ACTIVE"
    return Nic(
        device=device.name,
        port=port.number,
        address=device.address,
        state=port.state or "?",
        layer=port.link_layer,
        gbits=float(rate[1]) if rate else 0.0,
        link=link,
        gid=_gid(machine, device.name, port.number) if ethernet else None,
    )


def _gid(machine: Machine, name: str, port: int) -> Gid:
    """Return the GID that NCCL and UCX prefer: RoCE v2, of this namespace, not link-local."""
    folder = f"{_CLASS}/{name}/ports/{port}"
    listed = machine.read.names(f"{folder}/gid_attrs/ndevs").names
    indices = sorted(int(index) for index in listed if re.fullmatch("[0-9]{1,3}", index))[:_GIDS]
    files = ("gid_attrs/ndevs", "gid_attrs/types", "gids")
    keys = [f"text {folder}/{file}/{index}" for index in indices for file in files]
    texts = [reading.text.strip() for reading in machine.read.together(keys)]
    here = machine.read.names("/sys/class/net").names
    columns = zip(indices, texts[::3], texts[1::3], texts[2::3], strict=True)
    entries = [entry for entry in columns if entry[1]]
    if not entries:
        return Gid()
    local = [entry for entry in entries if entry[1] in here]
    if here and not local:
        return Gid(net=entries[0][1], here=False)
    index, net, kind, _ = max(local or entries, key=lambda entry: (_preference(*entry), -entry[0]))
    return Gid(index, kind, net, True if here else None)


def _preference(_index: int, _net: str, kind: str, gid: str) -> tuple[bool, bool, bool]:
    ipv4 = gid.startswith("0000:0000:0000:0000:0000:ffff:")
    return (not gid.startswith("fe80"), kind == "RoCE v2", ipv4)


def choices(machine: Machine) -> tuple[Choice, ...]:
    """Return the NICs of each GPU that programs of this machine can use."""
    tree, ports = machine.know(pci.tree), machine.know(nics)
    usable = [gpu for gpu in machine.know(gpus.usable) if gpu.address in tree.devices]
    between = _between_sockets(machine)
    found = links(machine, [gpu.address for gpu in usable])
    reaches = {
        gpu.address: [_reach_of(tree, found[gpu.address], nic, between) for nic in ports]
        for gpu in usable
    }
    return tuple(_choose_nic(gpu.label, found[gpu.address], reaches[gpu.address]) for gpu in usable)


def _between_sockets(machine: Machine) -> float:
    text = machine.read.text("/proc/cpuinfo").text
    vendor = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    model = re.search(r"^model\s*:\s*(\d{1,4})\s*$", text, re.MULTILINE)
    if vendor and vendor[1] == "GenuineIntel" and model:
        return next(rate for first, rate in _XEON if int(model[1]) >= first)
    return _SOCKETS.get(vendor[1] if vendor else "", 6.0)


def _reach_of(tree: pci.PciTree, gpu: PcieLink, nic: Nic, between: float) -> _Reach:
    way = path(tree, gpu.address, nic.address)
    limits = [gpu.max_rate, nic.link.max_rate, nic.gbits / 8]
    limits += [between] if way.near is Near.SYS else []
    return _Reach(nic, way, min(limits) if all(limits) else 0.0)


def _choose_nic(label: str, link: PcieLink, reaches: Sequence[_Reach]) -> Choice:
    up = [reach for reach in reaches if reach.nic.up]
    best = min(
        up, key=lambda reach: (reach.path.near, len(reach.path.switches), -reach.rate), default=None
    )
    down = [reach for reach in reaches if not reach.nic.up]
    nearer = [reach for reach in down if best is None or reach.path.near < best.path.near]
    nccl = _nccl(up)
    by_rate = sorted(up, key=lambda reach: (-reach.rate, reach.path.near, len(reach.path.switches)))
    ucx = [reach for reach in by_rate[:_RAILS] if reach.rate * _RATIO >= by_rate[0].rate]
    return Choice(
        gpu=label,
        address=link.address,
        link=link,
        nic=None if best is None else best.nic,
        path=None if best is None else best.path,
        down=_names(nearer),
        nccl=_names(nccl),
        ucx=_names(ucx),
        why="" if best is None else _explain_choice(best, nccl),
    )


def _names(reaches: Iterable[_Reach]) -> tuple[str, ...]:
    return tuple(reach.nic.name for reach in reaches)


def _nccl_class(near: Near) -> Near:
    return Near.PHB if near is Near.NODE else near


def _nccl(up: Sequence[_Reach]) -> list[_Reach]:
    """Return the NICs of the widest paths, and among these of the nearest class."""
    widest = max((reach.rate for reach in up), default=0.0)
    wide = [reach for reach in up if reach.rate == widest]
    nearest = min((_nccl_class(reach.path.near) for reach in wide), default=Near.SYS)
    return [reach for reach in wide if _nccl_class(reach.path.near) == nearest]


def _explain_choice(best: _Reach, nccl: Sequence[_Reach]) -> str:
    if best in nccl and len(nccl) == 1:
        return ""
    if best in nccl:
        return "Several are equal for NCCL; GPUs take turns."
    rate, wider = best.rate, nccl[0]
    return (
        f"NCCL prefers the path of {wider.rate:.1f} GB/s to {wider.nic.name} ({wider.path.near}) "
        f"to that of {rate:.1f} GB/s to {best.nic.name} ({best.path.near})."
    )
