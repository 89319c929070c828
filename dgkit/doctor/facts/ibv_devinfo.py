"""What ibv_devinfo prints: the RDMA devices that libibverbs can use."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

__all__ = ["IbvDevice", "IbvDevices", "devinfo", "parse"]

_LINE = re.compile(r"^\s*([a-z_]\w*):\s*(.*?)\s*$")


class IbvDevice(msgspec.Struct, frozen=True):
    """`part`: vendor_part_id, 41692 is a BlueField-3. `states`, `layers`: of its ports in order."""

    name: str
    transport: str = ""
    firmware: str = ""
    board: str = ""
    part: int = 0
    states: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


class IbvDevices(msgspec.Struct, frozen=True):
    """`why`: why they could not be listed, "" if they were (and there may be none)."""

    devices: tuple[IbvDevice, ...] = ()
    why: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Of all of them."""
        return frozenset(one.name for one in self.devices)


def parse(text: str) -> tuple[IbvDevice, ...]:
    """Output with and without -v; lines that it does not know are left out."""
    devices: list[dict[str, list[str]]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match[1] == "hca_id":
            devices.append({})
        if devices:
            devices[-1].setdefault(match[1], []).append(match[2])
    return tuple(_device(said) for said in devices)


def _device(said: dict[str, list[str]]) -> IbvDevice:
    def first(name: str) -> str:
        return said.get(name, [""])[0]

    part = first("vendor_part_id")
    return IbvDevice(
        name=first("hca_id"),
        transport=re.sub(r"\(-?\d+\)$", "", first("transport")).rstrip(),
        firmware=first("fw_ver"),
        board=first("board_id"),
        part=int(part) if re.fullmatch("[0-9]{1,9}", part) else 0,
        states=tuple(word.partition(" ")[0] for word in said.get("state", ())),
        layers=tuple(said.get("link_layer", ())),
    )


def devinfo(machine: Machine) -> IbvDevices:
    """Asks for them; exit status 255 with `No IB devices found` means that there are none."""
    reading = machine.read.run("ibv_devinfo")
    if not reading.ok:
        return IbvDevices(why=reading.why)
    found = parse(reading.text)
    said = (reading.said + reading.text).lower()
    if not found and reading.code and "no ib devices" not in said:
        return IbvDevices(why=f"ibv_devinfo: {reading.said.strip()[:200] or reading.code}")
    return IbvDevices(found)
