# SPDX-License-Identifier: Apache-2.0
"""RDMA devices: those of sysfs, and those that ibv_devinfo lists."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

_LINE = re.compile(r"^\s*([a-z_]\w*):\s*(.*?)\s*$")


class IbvDevice(msgspec.Struct, frozen=True):
    """An RDMA device.

    Attributes:
        board: PSID.
        part: vendor_part_id; 41692 is a BlueField-3.
        states: Port states, in order.
        layers: Link layers of the ports, in order.
    """

    name: str
    transport: str = ""
    firmware: str = ""
    board: str = ""
    part: int = 0
    states: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


class IbvDevices(msgspec.Struct, frozen=True):
    """All RDMA devices. `why` is the reason if they could not be listed, else ""."""

    devices: tuple[IbvDevice, ...] = ()
    why: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Names of the devices."""
        return frozenset(device.name for device in self.devices)


def parse_devinfo(text: str) -> tuple[IbvDevice, ...]:
    """Parse the output of ibv_devinfo, with or without -v; unknown lines are ignored."""
    devices: list[dict[str, list[str]]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match[1] == "hca_id":
            devices.append({})
        if devices:
            devices[-1].setdefault(match[1], []).append(match[2])
    return tuple(_ibv_device(fields) for fields in devices)


def _ibv_device(fields: dict[str, list[str]]) -> IbvDevice:
    def first(name: str) -> str:
        return fields.get(name, [""])[0]

    part = first("vendor_part_id")
    return IbvDevice(
        name=first("hca_id"),
        transport=re.sub(r"\(-?\d+\)$", "", first("transport")).rstrip(),
        firmware=first("fw_ver"),
        board=first("board_id"),
        part=int(part) if re.fullmatch("[0-9]{1,9}", part) else 0,
        states=tuple(word.partition(" ")[0] for word in fields.get("state", ())),
        layers=tuple(fields.get("link_layer", ())),
    )


def devinfo(machine: Machine) -> IbvDevices:
    """Run ibv_devinfo; exit status 255 with `No IB devices found` means that there are none."""
    reading = machine.read.run("ibv_devinfo")
    if not reading.ok:
        return IbvDevices(why=reading.why)
    found = parse_devinfo(reading.text)
    output = (reading.said + reading.text).lower()
    if not found and reading.code and "no ib devices" not in output:
        return IbvDevices(why=f"ibv_devinfo: {reading.said.strip()[:200] or reading.code}")
    return IbvDevices(found)


_CLASS = "/sys/class/infiniband"
_FILES = ("fw_ver", "board_id", "hca_type", "parent")
_PORT_FILES = ("link_layer", "state", "phys_state", "rate")
_MANAGEMENT = re.compile(r"smi\d{1,9}")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class RdmaPort(msgspec.Struct, frozen=True):
    """Port of an RDMA device; "" if a value is unknown.

    Attributes:
        number: Number of the port, from 1.
        link_layer: Ethernet or InfiniBand.
        state: Logical state: ACTIVE, DOWN, INIT, ARMED.
        physical: Physical state.
        rate: Rate in the kernel's format, `200 Gb/sec (4X HDR)`.
    """

    number: int
    link_layer: str = ""
    state: str = ""
    physical: str = ""
    rate: str = ""


class RdmaDevice(msgspec.Struct, frozen=True):
    """An RDMA device.

    Attributes:
        name: Name, such as mlx5_0.
        address: Address of its PCI function, "" for a software device (rxe, siw).
        firmware: Version, `32.41.1000`.
        board: PSID, `MT_0000000884`.
        model: Type, `MT41692`.
        parent: Network interface of a software device.
        nets: Network interfaces of the same PCI function.
        ports: Ports.
        why: Reason why the PCI function or a port state is unknown, "" if they are known.
    """

    name: str
    address: str = ""
    firmware: str = ""
    board: str = ""
    model: str = ""
    parent: str = ""
    nets: tuple[str, ...] = ()
    ports: tuple[RdmaPort, ...] = ()
    why: str = ""

    @property
    def software(self) -> bool:
        """True if it is a software device (Soft-RoCE, Soft-iWARP), without a PCI function."""
        return not self.address and not self.why

    @property
    def active(self) -> bool:
        """True if any port is active."""
        return any(port.state == "ACTIVE" for port in self.ports)


class RdmaDevices(msgspec.Struct, frozen=True):
    """All RDMA devices, sorted by name. `why` is the reason if they could not be listed, else "".

    A kernel without RDMA has no /sys/class/infiniband; the list is then empty and `why` is "".
    """

    devices: tuple[RdmaDevice, ...] = ()
    why: str = ""

    def at(self, address: str) -> RdmaDevice | None:
        """Return the device of a PCI function, if there is one."""
        return next((device for device in self.devices if device.address == address), None)


def devices(machine: Machine) -> RdmaDevices:
    """Read /sys/class/infiniband (Linux, Documentation/ABI/stable/sysfs-class-infiniband).

    Planes of an XDR port have a device smi1 for management, which no program opens: it is left out.
    """
    listing = machine.read.names(_CLASS)
    if listing.absent:
        return RdmaDevices()
    if not listing.ok:
        return RdmaDevices(why=listing.why)
    names = tuple(name for name in listing.names if not _MANAGEMENT.fullmatch(name))
    keys = [f"text {_CLASS}/{name}/{file}" for name in names for file in _FILES]
    keys += [f"link {_CLASS}/{name}/device" for name in names]
    keys += [f"names {_CLASS}/{name}/{folder}" for name in names for folder in ("ports", _NETS)]
    machine.read.together(keys)
    ports = {name: machine.read.names(f"{_CLASS}/{name}/ports").names for name in names}
    machine.read.together(
        [
            f"text {_CLASS}/{name}/ports/{port}/{file}"
            for name in names
            for port in ports[name]
            for file in _PORT_FILES
        ]
    )
    return RdmaDevices(tuple(_read_device(machine, name, ports[name]) for name in names))


_NETS = "device/net"


def _read_device(machine: Machine, name: str, ports: tuple[str, ...]) -> RdmaDevice:
    folder = f"{_CLASS}/{name}"
    firmware, board, model, parent = (_line(machine, f"{folder}/{file}") for file in _FILES)
    device = machine.read.link(f"{folder}/device")
    last = device.text.rpartition("/")[2]
    readings = [device, machine.read.names(f"{folder}/ports")]
    readings += [machine.read.text(f"{folder}/ports/{port}/state") for port in ports]
    return RdmaDevice(
        why=next((reading.why for reading in readings if reading.fault not in ("", "absent")), ""),
        name=name,
        address=last if _ADDRESS.fullmatch(last) else "",
        firmware=firmware,
        board=board,
        model=model,
        parent=parent,
        nets=machine.read.names(f"{folder}/{_NETS}").names,
        ports=tuple(
            _read_port(machine, folder, port) for port in ports if re.fullmatch("[0-9]{1,9}", port)
        ),
    )


def _read_port(machine: Machine, folder: str, port: str) -> RdmaPort:
    layer, state, physical, rate = (
        _line(machine, f"{folder}/ports/{port}/{file}") for file in _PORT_FILES
    )
    return RdmaPort(
        number=int(port),
        link_layer=layer,
        state=state.rpartition(":")[2].strip(),  # "4: ACTIVE"
        physical=physical.rpartition(":")[2].strip(),
        rate=rate,
    )


_FEW = 16  # GIDs that are looked at: a port has up to 256


def gid_nets(machine: Machine, name: str, port: int) -> frozenset[str] | None:
    """Return the network interfaces of a port's GIDs; None if they are not known, or too many.

    The kernel names an interface of another network namespace, too (Linux, sysfs-class-infiniband,
    gid_attrs/ndevs). The file of an entry without a GID gives an error when it is read.
    """
    folder = f"{_CLASS}/{name}/ports/{port}/gid_attrs/ndevs"
    indices = sorted(machine.read.names(folder).names, key=lambda index: (len(index), index))
    found = machine.read.together([f"text {folder}/{index}" for index in indices[:_FEW]])
    unread = any(entry.fault not in ("", "absent", "failed") for entry in found)
    if not found or unread or (all(entry.ok for entry in found) and len(indices) > _FEW):
        return None
    return frozenset(entry.text.strip() for entry in found if entry.ok) - {""}


def _line(machine: Machine, path: str) -> str:
    return machine.read.text(path).text.strip()
