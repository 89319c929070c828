"""RDMA devices, from sysfs."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

__all__ = ["RdmaDevice", "RdmaDevices", "RdmaPort", "devices"]

_CLASS = "/sys/class/infiniband"
_FILES = ("fw_ver", "board_id", "hca_type", "parent")
_PORT_FILES = ("link_layer", "state", "phys_state", "rate")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class RdmaPort(msgspec.Struct, frozen=True):
    """`link_layer`: Ethernet or InfiniBand. `state`: ACTIVE, DOWN, INIT, ARMED.

    `rate`: as the kernel writes it, `200 Gb/sec (4X HDR)`. "" is what was not told.
    """

    number: int
    link_layer: str = ""
    state: str = ""
    physical: str = ""
    rate: str = ""


class RdmaDevice(msgspec.Struct, frozen=True):
    """`address`: of its PCI function, "" for one in software (rxe, siw), which has a `parent`.

    `firmware`: `32.41.1000`. `board`: the board's PSID, `MT_0000000884`. `model`: `MT41692`.
    `nets`: the network interfaces of the same PCI function, `parent`: that of one in software.
    `why`: why the PCI function or the ports' state is not known, "" if they are.
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
        """Soft-RoCE, Soft-iWARP: no PCI function of its own."""
        return not self.address and not self.why

    @property
    def active(self) -> bool:
        """Whether any port is."""
        return any(port.state == "ACTIVE" for port in self.ports)


class RdmaDevices(msgspec.Struct, frozen=True):
    """All of them by name, sorted. `why`: why they could not be listed, "" if they were.

    A kernel without RDMA has no such folder: then there are none, and `why` is "".
    """

    devices: tuple[RdmaDevice, ...] = ()
    why: str = ""

    def at(self, address: str) -> RdmaDevice | None:
        """The one of a PCI function."""
        return next((one for one in self.devices if one.address == address), None)


def devices(machine: Machine) -> RdmaDevices:
    """Reads /sys/class/infiniband (Linux, Documentation/ABI/stable/sysfs-class-infiniband)."""
    listing = machine.read.names(_CLASS)
    if listing.absent:
        return RdmaDevices()
    if not listing.ok:
        return RdmaDevices(why=listing.why)
    names = listing.names
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
    return RdmaDevices(tuple(_device(machine, name, ports[name]) for name in names))


_NETS = "device/net"


def _device(machine: Machine, name: str, ports: tuple[str, ...]) -> RdmaDevice:
    folder = f"{_CLASS}/{name}"
    firmware, board, model, parent = (_line(machine, f"{folder}/{file}") for file in _FILES)
    device = machine.read.link(f"{folder}/device")
    last = device.text.rpartition("/")[2]
    looks = [device, machine.read.names(f"{folder}/ports")]
    looks += [machine.read.text(f"{folder}/ports/{port}/state") for port in ports]
    return RdmaDevice(
        why=next((one.why for one in looks if one.fault not in ("", "absent")), ""),
        name=name,
        address=last if _ADDRESS.fullmatch(last) else "",
        firmware=firmware,
        board=board,
        model=model,
        parent=parent,
        nets=machine.read.names(f"{folder}/{_NETS}").names,
        ports=tuple(
            _port(machine, folder, port) for port in ports if re.fullmatch("[0-9]{1,9}", port)
        ),
    )


def _port(machine: Machine, folder: str, port: str) -> RdmaPort:
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


def _line(machine: Machine, path: str) -> str:
    return machine.read.text(path).text.strip()
