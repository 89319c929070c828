# SPDX-License-Identifier: Apache-2.0
"""PCI devices of a machine and their tree, from sysfs."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import config_space, pci_ids
from .pci_ids import BLUEFIELD, MELLANOX, NVIDIA

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.IGNORECASE)
# A host bridge in sysfs. VMD and similar controllers create domains from 10000 on.
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def address(text: str) -> str:
    """Convert `00000000:B3:00.0` or `b3:00.0` to the format of sysfs; "" if invalid."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}".lower()


# Assumed type of a bridge by the type of the bridge above it; "" is a host bridge.
_BELOW = {
    "": config_space.ROOT_PORT,
    config_space.ROOT_PORT: config_space.UPSTREAM,
    config_space.DOWNSTREAM: config_space.UPSTREAM,
}


class PciDevice(msgspec.Struct, frozen=True):
    """A PCI function.

    Attributes:
        path: Components from the host bridge (`pci0000:b0`) to the address; only the address if
            sysfs does not contain the path.
        kind: Class code without its last byte: 0x0302 is a 3D controller.
        numa: NUMA node, -1 if unknown.
        port: PCIe device type (config_space.PORTS), "" if it cannot be read.
        physfn: Address of the physical function of a virtual function.
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
        """True if it is a display or 3D controller of NVIDIA."""
        return self.vendor == NVIDIA and self.kind >> 8 == 0x03

    @property
    def is_nic(self) -> bool:
        """True if it is a network controller: Ethernet, InfiniBand or other."""
        return self.kind >> 8 == 0x02

    @property
    def is_bridge(self) -> bool:
        """True if it is a PCI-to-PCI bridge: a root port or a port of a switch."""
        return self.kind == 0x0604

    @property
    def bluefield(self) -> str:
        """Generation of a BlueField network function, "" for other devices."""
        return BLUEFIELD.get(self.device, "") if self.vendor == MELLANOX and self.is_nic else ""

    @property
    def management(self) -> str:
        """Generation of a BlueField SoC management function, "" for other devices."""
        return pci_ids.MANAGEMENT.get(self.device, "") if self.vendor == MELLANOX else ""

    @property
    def name(self) -> str:
        """Name derived from the IDs: `ConnectX-7`, `NVIDIA 2330`, `8086:09a2`."""
        return pci_ids.name(self.vendor, self.device)

    @property
    def slot(self) -> str:
        """Address without the function number, shared by the functions of a card."""
        return self.address.rpartition(".")[0]


class PciTree(msgspec.Struct, frozen=True):
    """All PCI devices of a machine.

    A container may hide bridges, but the path of a visible device contains them nevertheless.

    Attributes:
        devices: Devices by address.
        why: Reason why devices are missing, "" if the list is complete.
        nodes: NUMA nodes of the machine, () if unknown.
    """

    devices: dict[str, PciDevice]
    why: str = ""
    nodes: tuple[int, ...] = ()

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """NVIDIA GPUs, sorted by address."""
        return tuple(device for device in self.devices.values() if device.is_gpu)

    @property
    def nics(self) -> tuple[PciDevice, ...]:
        """Network controllers of all vendors, sorted by address."""
        return tuple(device for device in self.devices.values() if device.is_nic)

    @property
    def bluefields(self) -> tuple[PciDevice, ...]:
        """Network functions of BlueFields, sorted by address."""
        return tuple(device for device in self.devices.values() if device.bluefield)

    def above(self, address: str) -> tuple[str, ...]:
        """Return the ancestors of a device or bridge, from the host bridge down."""
        device = self.devices.get(address)
        if device is not None:
            return device.path[:-1]
        for other in self.devices.values():  # a hidden bridge is in the paths of its children
            if address in other.path:
                return other.path[: other.path.index(address)]
        return ()

    def parent(self, address: str) -> str:
        """Return the bridge or host bridge directly above, "" if none is known."""
        return (self.above(address) or ("",))[-1]

    def children(self, address: str) -> tuple[str, ...]:
        """Return the devices directly below a bridge or host bridge, sorted by address."""
        children = {
            device.path[device.path.index(address) + 1]
            for device in self.devices.values()
            if address in device.path[:-1]
        }
        return tuple(sorted(children))

    def host_bridge(self, address: str) -> str:
        """Return the lowest host bridge above a device, "" if unknown."""
        found = [part for part in self.above(address) if is_host_bridge(part)]
        return found[-1] if found else ""

    def port(self, address: str) -> str:
        """Return the PCIe type of a bridge (config_space.PORTS); "" for other devices.

        If its PCIe capability cannot be read, the type follows from its position: a bridge at a
        host bridge is a root port, one below a root port or downstream port is an upstream port.
        """
        device = self.devices.get(address)
        if device is not None and not device.is_bridge:
            return ""
        path, kind = (*self.above(address), address), ""
        for part in path[_last_host_bridge(path) + 1 :]:
            own = self.devices[part].port if part in self.devices else ""
            kind = own or _BELOW.get(kind, config_space.DOWNSTREAM)
        return kind

    def numa(self, address: str) -> int:
        """Return the NUMA node of a device, else of its nearest ancestor with a node, else -1."""
        for part in (address, *reversed(self.above(address))):
            device = self.devices.get(part)
            if device is not None and device.numa >= 0:
                return device.numa
        return -1


def is_host_bridge(part: str) -> bool:
    """Return whether a component of a path is a host bridge, such as `pci0000:b0`."""
    return _HOST_BRIDGE.fullmatch(part) is not None


def _last_host_bridge(path: tuple[str, ...]) -> int:
    return max((at for at, part in enumerate(path) if is_host_bridge(part)), default=-1)


_MAX_NUMBERS = 1 << 16  # in a list


def parse_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list format: `0-3,8` is 0, 1, 2, 3, 8. Malformed parts are ignored."""
    found: set[int] = set()
    left = _MAX_NUMBERS
    for match in re.finditer(r"(\d{1,4})(?:-(\d{1,4}))?", text):
        run = range(int(match[1]), int(match[2] or match[1]) + 1)
        found.update(run)
        left -= len(run) + 1
        if left < 0:
            break
    return tuple(sorted(found))


def tree(machine: Machine) -> PciTree:
    """Read the PCI tree."""
    listing = machine.read.names(DEVICES)
    if not listing.ok:
        return PciTree({}, listing.why)
    names = [name for name in listing.names if address(name) == name]
    keys = [f"text {DEVICES}/{name}/{file}" for name in names for file in ("uevent", "numa_node")]
    keys += [f"link {DEVICES}/{name}" for name in names]
    machine.read.together(["text /sys/devices/system/node/online", *keys])
    found = (_read_device(machine, name) for name in names)
    devices = {device.address: device for device in found if device is not None}
    return PciTree(
        _with_details(machine, devices),
        next((why for name in names if name not in devices if (why := _unread(machine, name))), ""),
        nodes=parse_list(machine.read.text("/sys/devices/system/node/online").text),
    )


def _read_device(machine: Machine, name: str) -> PciDevice | None:
    folder = f"{DEVICES}/{name}"
    link, numa = machine.read.link(folder), machine.read.text(f"{folder}/numa_node")
    fields = _uevent(machine.read.text(f"{folder}/uevent").text)
    if "PCI_ID" not in fields:
        keys = [f"text {folder}/{file}" for file in ("vendor", "device", "class")]
        *both, number = (reading.text.strip() for reading in machine.read.together(keys))
        fields |= {"PCI_ID": ":".join(both), "PCI_CLASS": number}
    ids, subsystem = _id_pair(fields.get("PCI_ID", "")), _id_pair(fields.get("PCI_SUBSYS_ID", ""))
    kind = _hex(fields.get("PCI_CLASS", ""))
    if ids is None:
        return None
    parts = link.text.split("/")
    path = tuple(part for part in parts if part and (is_host_bridge(part) or address(part) == part))
    return PciDevice(
        address=name,
        path=path if path[-1:] == (name,) and len(set(path)) == len(path) else (name,),
        vendor=ids[0],
        device=ids[1],
        kind=(kind or 0) >> 8,
        driver=fields.get("DRIVER", ""),
        numa=int(numa.text) if re.fullmatch(r"\s*\d{1,5}\s*", numa.text) else -1,
        subsystem=subsystem or (0, 0),
    )


def _unread(machine: Machine, name: str) -> str:
    """Return the reason why the files of a device cannot be read; "" if it was removed."""
    readings = (machine.read.text(f"{DEVICES}/{name}/{file}") for file in ("uevent", "vendor"))
    return next((reading.why for reading in readings if not reading.ok and not reading.absent), "")


def _uevent(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _hex(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9A-Fa-f]{1,8}", text) else None


def _id_pair(text: str) -> tuple[int, int] | None:
    first, second = (_hex(part) for part in (*text.split(":", 1), "")[:2])
    return None if first is None or second is None else (first, second)


def _with_details(machine: Machine, devices: dict[str, PciDevice]) -> dict[str, PciDevice]:
    """Add the PCIe type of bridges above GPUs and NICs, and the owner of virtual functions."""
    endpoints = [device for device in devices.values() if device.is_gpu or device.is_nic]
    bridges = {part for device in endpoints for part in device.path[:-1] if part in devices}
    nics = [device.address for device in endpoints if device.is_nic]
    machine.read.together(
        [f"raw {DEVICES}/{bridge}/config" for bridge in sorted(bridges)]
        + [f"link {DEVICES}/{nic}/physfn" for nic in nics]
    )
    replace = msgspec.structs.replace
    detailed = dict(devices)
    for bridge in bridges:
        raw = machine.read.raw(f"{DEVICES}/{bridge}/config").raw
        detailed[bridge] = replace(devices[bridge], port=config_space.port(raw))
    for nic in nics:
        owner = address(machine.read.link(f"{DEVICES}/{nic}/physfn").text.rpartition("/")[2])
        detailed[nic] = replace(devices[nic], physfn=owner)
    return detailed
