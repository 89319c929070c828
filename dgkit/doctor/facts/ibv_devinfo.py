"""Parser of ibv_devinfo: the RDMA devices that libibverbs can use."""

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


def parse(text: str) -> tuple[IbvDevice, ...]:
    """Parse the output, with or without -v; unknown lines are ignored."""
    devices: list[dict[str, list[str]]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match[1] == "hca_id":
            devices.append({})
        if devices:
            devices[-1].setdefault(match[1], []).append(match[2])
    return tuple(_device(fields) for fields in devices)


def _device(fields: dict[str, list[str]]) -> IbvDevice:
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
    found = parse(reading.text)
    output = (reading.said + reading.text).lower()
    if not found and reading.code and "no ib devices" not in output:
        return IbvDevices(why=f"ibv_devinfo: {reading.said.strip()[:200] or reading.code}")
    return IbvDevices(found)
