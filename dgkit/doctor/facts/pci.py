"""The PCI devices of a machine and how they hang together, from sysfs."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import config_space, pci_ids
from .pci_ids import BLUEFIELD, MELLANOX, NVIDIA

__all__ = [
    "BLUEFIELD",
    "DEVICES",
    "MELLANOX",
    "NVIDIA",
    "PciDevice",
    "PciTree",
    "address",
    "is_host_bridge",
    "numbers",
    "tree",
]

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.IGNORECASE)
# A host bridge as sysfs has it; VMD and other bridges of their own make domains from 10000 on.
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def address(text: str) -> str:
    """`00000000:B3:00.0` of nvidia-smi and `b3:00.0` of lspci as sysfs has it; "" for neither."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}".lower()


# The kind of a bridge by that of the one above it, where nothing else tells; "" is a host bridge.
_BELOW = {
    "": config_space.ROOT_PORT,
    config_space.ROOT_PORT: config_space.UPSTREAM,
    config_space.DOWNSTREAM: config_space.UPSTREAM,
}


class PciDevice(msgspec.Struct, frozen=True):
    """`path`: from the host bridge (`pci0000:b0`) down to the device's own address.

    It is the address alone where sysfs does not tell. `kind` is the class code without its last
    byte: 0x0302 is a 3D controller. `numa` is -1 where the system does not tell. `port`: what its
    PCIe capability says that it is (config_space.PORTS), "" if that may not be read. `physfn`: the
    address of the function that a virtual function belongs to.
    """

    address: str
    path: tuple[str, ...]
    vendor: int
    device: int
    kind: int
    driver: str = ""
    numa: int = -1
    subsystem: tuple[int, int] = (0, 0)
    port: str = ""
    physfn: str = ""

    @property
    def is_gpu(self) -> bool:
        """NVIDIA's display and 3D controllers."""
        return self.vendor == NVIDIA and self.kind >> 8 == 0x03

    @property
    def is_nic(self) -> bool:
        """Any network controller: Ethernet, InfiniBand, others."""
        return self.kind >> 8 == 0x02

    @property
    def is_bridge(self) -> bool:
        """PCI-to-PCI: root ports and the ports of switches."""
        return self.kind == 0x0604

    @property
    def bluefield(self) -> str:
        """The generation, "" if it is no network function of a BlueField."""
        return BLUEFIELD.get(self.device, "") if self.vendor == MELLANOX and self.is_nic else ""

    @property
    def management(self) -> str:
        """The generation of the BlueField whose SoC management function this is, else ""."""
        return pci_ids.MANAGEMENT.get(self.device, "") if self.vendor == MELLANOX else ""

    @property
    def name(self) -> str:
        """For people, without lspci: `ConnectX-7`, `NVIDIA 2330`, `8086:09a2`."""
        return pci_ids.name(self.vendor, self.device)

    @property
    def slot(self) -> str:
        """The address without the function: what the functions of one card share."""
        return self.address.rpartition(".")[0]


class PciTree(msgspec.Struct, frozen=True):
    """All devices by address. `why`: why they are not known, or not all, "" if they are.

    A container may hide devices: the path of one that is there names its bridges all the same.
    `nodes`: the NUMA nodes of the machine, () if it does not tell.
    """

    devices: dict[str, PciDevice]
    why: str = ""
    nodes: tuple[int, ...] = ()

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """NVIDIA's, by address."""
        return tuple(one for one in self.devices.values() if one.is_gpu)

    @property
    def nics(self) -> tuple[PciDevice, ...]:
        """Of all vendors, by address."""
        return tuple(one for one in self.devices.values() if one.is_nic)

    @property
    def bluefields(self) -> tuple[PciDevice, ...]:
        """The network functions of BlueFields, by address."""
        return tuple(one for one in self.devices.values() if one.bluefield)

    def above(self, address: str) -> tuple[str, ...]:
        """The host bridge, the root port and all bridges above a device or bridge, from the top."""
        known = self.devices.get(address)
        if known is not None:
            return known.path[:-1]
        for one in self.devices.values():  # hidden, but others name it
            if address in one.path:
                return one.path[: one.path.index(address)]
        return ()

    def parent(self, address: str) -> str:
        """The next bridge or host bridge above, "" if there is none or it is not known."""
        return (self.above(address) or ("",))[-1]

    def children(self, address: str) -> tuple[str, ...]:
        """The devices right below a bridge or a host bridge, in the order of addresses."""
        below = {
            one.path[one.path.index(address) + 1]
            for one in self.devices.values()
            if address in one.path[:-1]
        }
        return tuple(sorted(below))

    def host_bridge(self, address: str) -> str:
        """The lowest host bridge above, "" if it is not known."""
        found = [part for part in self.above(address) if is_host_bridge(part)]
        return found[-1] if found else ""

    def port(self, address: str) -> str:
        """Which kind of bridge it is, one of config_space.PORTS; "" for what is no bridge.

        By its PCIe capability, or where this user may not read that, by its place: a bridge at a
        host bridge is a root port, below a root port or a downstream port comes an upstream port.
        """
        known = self.devices.get(address)
        if known is not None and not known.is_bridge:
            return ""
        path, kind = (*self.above(address), address), ""
        for part in path[_last_host_bridge(path) + 1 :]:
            told = self.devices[part].port if part in self.devices else ""
            kind = told or _BELOW.get(kind, config_space.DOWNSTREAM)
        return kind

    def numa(self, address: str) -> int:
        """The NUMA node of a device or of the nearest bridge above it that has one, else -1."""
        for one in (address, *reversed(self.above(address))):
            known = self.devices.get(one)
            if known is not None and known.numa >= 0:
                return known.numa
        return -1


def is_host_bridge(part: str) -> bool:
    """Whether a part of a path is one: `pci0000:b0`."""
    return _HOST_BRIDGE.fullmatch(part) is not None


def _last_host_bridge(path: tuple[str, ...]) -> int:
    return max((at for at, part in enumerate(path) if is_host_bridge(part)), default=-1)


_MOST = 1 << 16  # numbers in a list that is read: no machine has more


def numbers(text: str) -> tuple[int, ...]:
    """What the kernel's list format says: `0-3,8` is 0, 1, 2, 3, 8. What is odd is left out."""
    found: set[int] = set()
    left = _MOST
    for match in re.finditer(r"(\d{1,4})(?:-(\d{1,4}))?", text):
        run = range(int(match[1]), int(match[2] or match[1]) + 1)
        found.update(run)
        left -= len(run) + 1
        if left < 0:
            break
    return tuple(sorted(found))


def tree(machine: Machine) -> PciTree:
    """Reads it."""
    listing = machine.read.names(DEVICES)
    if not listing.ok:
        return PciTree({}, listing.why)
    names = [name for name in listing.names if address(name) == name]
    looks = [f"text {DEVICES}/{name}/{file}" for name in names for file in ("uevent", "numa_node")]
    looks += [f"link {DEVICES}/{name}" for name in names]
    machine.read.together(["text /sys/devices/system/node/online", *looks])
    found = (_device(machine, name) for name in names)
    devices = {one.address: one for one in found if one is not None}
    return PciTree(
        _finished(machine, devices),
        next((why for name in names if name not in devices if (why := _unread(machine, name))), ""),
        nodes=numbers(machine.read.text("/sys/devices/system/node/online").text),
    )


def _device(machine: Machine, name: str) -> PciDevice | None:
    folder = f"{DEVICES}/{name}"
    link, numa = machine.read.link(folder), machine.read.text(f"{folder}/numa_node")
    said = _uevent(machine.read.text(f"{folder}/uevent").text)
    if "PCI_ID" not in said:
        said |= _files(machine, folder)
    ids, subsystem = _pair(said.get("PCI_ID", "")), _pair(said.get("PCI_SUBSYS_ID", ""))
    kind = _hex(said.get("PCI_CLASS", ""))
    if ids is None:
        return None
    parts = link.text.split("/")
    path = tuple(one for one in parts if one and (is_host_bridge(one) or address(one) == one))
    return PciDevice(
        address=name,
        path=path if path[-1:] == (name,) and len(set(path)) == len(path) else (name,),
        vendor=ids[0],
        device=ids[1],
        kind=(kind or 0) >> 8,
        driver=said.get("DRIVER", ""),
        numa=int(numa.text) if re.fullmatch(r"\s*\d{1,5}\s*", numa.text) else -1,
        subsystem=subsystem or (0, 0),
    )


def _unread(machine: Machine, name: str) -> str:
    """Why a device's files tell nothing; "" for one that has gone, or has none."""
    read = (machine.read.text(f"{DEVICES}/{name}/{file}") for file in ("uevent", "vendor"))
    return next((one.why for one in read if not one.ok and not one.absent), "")


def _uevent(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _files(machine: Machine, folder: str) -> dict[str, str]:
    """What uevent says, from the files that say it one by one."""
    looks = [f"text {folder}/{file}" for file in ("vendor", "device", "class")]
    vendor, device, kind = (one.text.strip() for one in machine.read.together(looks))
    return {"PCI_ID": f"{vendor}:{device}", "PCI_CLASS": kind}


def _hex(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9A-Fa-f]{1,8}", text) else None


def _pair(text: str) -> tuple[int, int] | None:
    first, second = (_hex(part) for part in (*text.split(":", 1), "")[:2])
    return None if first is None or second is None else (first, second)


def _finished(machine: Machine, devices: dict[str, PciDevice]) -> dict[str, PciDevice]:
    """With what only some have: bridges above a GPU or NIC their kind, virtual ones their owner."""
    chosen = [one for one in devices.values() if one.is_gpu or one.is_nic]
    bridges = {part for one in chosen for part in one.path[:-1] if part in devices}
    nics = [one.address for one in chosen if one.is_nic]
    machine.read.together(
        [f"raw {DEVICES}/{one}/config" for one in sorted(bridges)]
        + [f"link {DEVICES}/{one}/physfn" for one in nics]
    )
    change = msgspec.structs.replace
    done = dict(devices)
    for one in bridges:
        raw = machine.read.raw(f"{DEVICES}/{one}/config").raw
        done[one] = change(devices[one], port=config_space.port(raw))
    for one in nics:
        owner = address(machine.read.link(f"{DEVICES}/{one}/physfn").text.rpartition("/")[2])
        done[one] = change(devices[one], physfn=owner)
    return done
