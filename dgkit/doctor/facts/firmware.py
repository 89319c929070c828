# SPDX-License-Identifier: Apache-2.0
"""NVIDIA network cards and their firmware."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import pci, pci_ids, rdma, versions
from .versions import Version

# First number of the firmware version by card family. Source: NVIDIA DOCA, General Support.
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
# Second number of the firmware version in each DOCA release, for the families in WITH_DOCA; older
# cards remain at an older number. Source: the same document of DOCA 2.9, 2.10, 3.0, 3.1 and 3.2.
BUNDLED: dict[tuple[int, ...], int] = {(2, 9): 43, (2, 10): 44, (3, 0): 45, (3, 1): 46, (3, 2): 47}
WITH_DOCA = (24, 32, 22, 26, 28, 40)


class Adapter(msgspec.Struct, frozen=True):
    """A network card.

    Attributes:
        address: PCI address of its first network function.
        model: Product, such as BlueField-3 or ConnectX-7.
        functions: Addresses of its network functions, without VFs.
        firmware: Firmware version; None if unknown.
        board: PSID.
        source: File or command from which the version was taken, or the reason if it is unknown.
    """

    address: str
    model: str
    functions: tuple[str, ...]
    firmware: Version | None = None
    board: str = ""
    source: str = ""

    @property
    def bluefield(self) -> bool:
        """True if the card is a DPU."""
        return self.model.startswith("BlueField")


def adapters(machine: Machine) -> tuple[Adapter, ...]:
    """Return NVIDIA's network cards, sorted by address."""
    cards: dict[str, list[pci.PciDevice]] = {}
    for nic in machine.know(pci.tree).nics:
        model = pci_ids.name(nic.vendor, nic.device)
        if nic.vendor == pci_ids.MELLANOX and not model.endswith("VF"):
            cards.setdefault(nic.address.rpartition(".")[0], []).append(nic)
    return tuple(_read_adapter(machine, functions) for functions in cards.values())


def _read_adapter(machine: Machine, functions: list[pci.PciDevice]) -> Adapter:
    first, addresses = functions[0], tuple(function.address for function in functions)
    firmware, board, source = _firmware(machine, addresses)
    model = pci_ids.name(first.vendor, first.device)
    return Adapter(first.address, model, addresses, firmware, board, source)


def _firmware(machine: Machine, addresses: tuple[str, ...]) -> tuple[Version | None, str, str]:
    """Return version, PSID and source: from sysfs (RDMA driver), else ethtool, else flint."""
    devices = machine.know(rdma.devices)
    for address in addresses:
        device = devices.at(address)
        if device is not None and (found := versions.find(device.firmware)):
            return found, device.board, f"/sys/class/infiniband/{device.name}/fw_ver"
    nets = machine.read.names(f"/sys/bus/pci/devices/{addresses[0]}/net").names
    for net in nets[:1]:
        found, board = ethtool(machine.read.run("ethtool", "-i", net).text)
        if found is not None:
            return found, board, f"ethtool -i {net}"
    reading = machine.read.run("flint", "-d", addresses[0], "q")
    found, board = flint(reading.text)
    why = reading.why or "".join((reading.said or reading.text).strip().splitlines()[:1])
    return found, board, "flint" if found else why


def ethtool(text: str) -> tuple[Version | None, str]:
    """Parse version and PSID of `ethtool -i`: `firmware-version: 24.33.1048 (MT_0000000540)`."""
    match = re.search(r"^firmware-version:[ \t]*(\S+)(?:[ \t]+\((\w+)\))?", text, re.MULTILINE)
    return (versions.find(match[1]), match[2] or "") if match else (None, "")


def flint(text: str) -> tuple[Version | None, str]:
    """Parse version and PSID of `flint -d ADDRESS q`."""
    version = re.search(r"^[ \t]*FW Version:[ \t]*(\S+)", text, re.MULTILINE)
    board = re.search(r"^[ \t]*PSID:[ \t]*(\S+)", text, re.MULTILINE)
    return versions.find(version[1]) if version else None, board[1] if board else ""
