"""The firmware of NVIDIA's network cards."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import pci, pci_ids, rdma, versions
from .versions import Version

__all__ = ["BUNDLED", "FAMILIES", "Adapter", "adapters", "ethtool", "flint"]

# A card's firmware begins with its family's number. NVIDIA DOCA, General Support.
FAMILIES = {
    "BlueField": 18,
    "BlueField-2": 24,
    "BlueField-3": 32,
    "ConnectX-4": 12,
    "ConnectX-4 Lx": 14,
    "ConnectX-5": 16,
    "ConnectX-5 Ex": 16,
    "ConnectX-6": 20,
    "ConnectX-6 Dx": 22,
    "ConnectX-6 Lx": 26,
    "ConnectX-7": 28,
    "ConnectX-8": 40,
}
# The second number of the firmware that a DOCA brings for the families below. The same document,
# of DOCA 2.9, 2.10, 3.0, 3.1 and 3.2; older cards have stayed at an older one.
BUNDLED: dict[tuple[int, ...], int] = {(2, 9): 43, (2, 10): 44, (3, 0): 45, (3, 1): 46, (3, 2): 47}
WITH_DOCA = (24, 32, 22, 26, 28, 40)


class Adapter(msgspec.Struct, frozen=True):
    """A card by its first network function. `model`: BlueField-3, ConnectX-7.

    `functions`: the addresses of all its network functions that are no VFs. `source`: the file or
    command that told the version, or why none did.
    """

    address: str
    model: str
    functions: tuple[str, ...]
    firmware: Version | None = None
    board: str = ""
    source: str = ""

    @property
    def bluefield(self) -> bool:
        """Whether it is a DPU."""
        return self.model.startswith("BlueField")


def adapters(machine: Machine) -> tuple[Adapter, ...]:
    """All cards of NVIDIA's, by address."""
    cards: dict[str, list[pci.PciDevice]] = {}
    for one in machine.know(pci.tree).nics:
        model = pci_ids.name(one.vendor, one.device)
        if one.vendor == pci_ids.MELLANOX and not model.endswith("VF"):
            cards.setdefault(one.address.rpartition(".")[0], []).append(one)
    return tuple(_adapter(machine, functions) for functions in cards.values())


def _adapter(machine: Machine, functions: list[pci.PciDevice]) -> Adapter:
    first, addresses = functions[0], tuple(one.address for one in functions)
    firmware, board, source = _firmware(machine, addresses)
    model = pci_ids.name(first.vendor, first.device)
    return Adapter(first.address, model, addresses, firmware, board, source)


def _firmware(machine: Machine, addresses: tuple[str, ...]) -> tuple[Version | None, str, str]:
    """From sysfs if the RDMA driver is loaded, else by the network driver, else by flint."""
    known = machine.know(rdma.devices)
    for address in addresses:
        device = known.at(address)
        if device is not None and (found := versions.find(device.firmware)):
            return found, device.board, f"/sys/class/infiniband/{device.name}/fw_ver"
    nets = machine.read.names(f"/sys/bus/pci/devices/{addresses[0]}/net").names
    for net in nets[:1]:
        found, board = ethtool(machine.read.run("ethtool", "-i", net).text)
        if found is not None:
            return found, board, f"ethtool -i {net}"
    reading = machine.read.run("flint", "-d", addresses[0], "q")
    found, board = flint(reading.text)
    said = reading.why or (reading.said or reading.text).strip().splitlines()[:1]
    words = said if isinstance(said, str) else " ".join(said)
    return found, board, "flint" if found else words


def ethtool(text: str) -> tuple[Version | None, str]:
    """Firmware and PSID of `ethtool -i`: `firmware-version: 24.33.1048 (MT_0000000540)`."""
    match = re.search(r"^firmware-version:[ \t]*(\S+)(?:[ \t]+\((\w+)\))?", text, re.MULTILINE)
    return (versions.find(match[1]), match[2] or "") if match else (None, "")


def flint(text: str) -> tuple[Version | None, str]:
    """Firmware and PSID of `flint -d ADDRESS q`."""
    version = re.search(r"^[ \t]*FW Version:[ \t]*(\S+)", text, re.MULTILINE)
    board = re.search(r"^[ \t]*PSID:[ \t]*(\S+)", text, re.MULTILINE)
    return versions.find(version[1]) if version else None, board[1] if board else ""
