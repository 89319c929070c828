# SPDX-License-Identifier: Apache-2.0
"""Parser of lspci: device names, and with -vvv the configuration space.

Root finds the same information in sysfs (`config_space`), but documents and users quote lspci.
Line formats: pciutils 3.2 to 3.13, lspci.c, ls-caps.c, ls-ecaps.c.
"""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .config_space import ACS_BITS, Acs, Link
from .link import generation
from .pci import PciDevice, address

# 0000:b3:00.0 Ethernet controller [0200]: Mellanox Technologies MT42822 ... [15b3:a2d6] (rev 01)
_DEVICE = re.compile(
    r"(?P<address>\S+) (?P<kind>[^\[\]]{1,80}?)(?: \[[0-9a-f]{4}\])?: (?P<name>.*?)"
    r"(?: \[(?P<ids>[0-9a-f]{4}:[0-9a-f]{4})\])?(?: \(rev [0-9a-f]{2}\))?(?: \(prog-if .*\))?",
    re.IGNORECASE,
)
_REGION = re.compile(r"Region (\d): Memory at .*\[size=(\d{1,12})([KMGTP]?)\]")
_LINK = re.compile(r"Lnk(Cap|Sta):.{0,40}?Speed ([0-9.]{1,8})GT/s.{0,40}?Width x(\d{1,2})")
_BIT = re.compile(r"\b(\w+)([+-])")
_MAX_LINE = 1000  # characters; longer lines are ignored
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}


class Details(msgspec.Struct, frozen=True):
    """A device in `lspci -vvv`.

    Attributes:
        denied: Whether reading the capabilities was denied.
        regions: Size in bytes of each memory region, by number.
    """

    name: str
    denied: bool = False
    acs: Acs | None = None
    link: Link | None = None
    regions: dict[int, int] = {}


def _blocks(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return the name of each device and the lines below it, by address."""
    found: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if len(line) > _MAX_LINE:
            continue
        match = None if line[:1].isspace() else _DEVICE.fullmatch(line.rstrip())
        if match is not None and (at := address(match["address"])):
            lines = []
            found[at] = match["name"], lines
        elif line.strip():
            lines.append(line)
    return found


def parse_names(text: str) -> dict[str, str]:
    """Parse `lspci -D -nn` or plain `lspci`: device names by address."""
    return {at: name for at, (name, _) in _blocks(text).items() if name}


def names(machine: Machine) -> dict[str, str]:
    """Return the device names from lspci; {} if lspci is not installed."""
    return parse_names(machine.read.run("lspci", "-D", "-nn").text)


def name(machine: Machine, device: PciDevice) -> str:
    """Return the name of a device, from lspci or by its IDs."""
    return machine.know(names).get(device.address, device.name)


def details(text: str) -> dict[str, Details]:
    """Parse `lspci -D -vvv`: details by address."""
    return {at: _parse_details(name, lines) for at, (name, lines) in _blocks(text).items()}


def _parse_details(name: str, lines: list[str]) -> Details:
    supported = enabled = None
    links: dict[str, tuple[int, int]] = {}
    regions: dict[int, int] = {}
    for line in lines:
        word, _, rest = line.strip().partition(":")
        if word in ("ACSCap", "ACSCtl"):
            bits = dict(_BIT.findall(rest))
            known = tuple(bit for bit in ACS_BITS.values() if bits.get(bit) == "+")
            if word == "ACSCap":
                supported = known
            else:
                enabled = known
        if (region := _REGION.search(line)) is not None:
            regions[int(region[1])] = int(region[2]) << _UNITS[region[3]]
        if (link := _LINK.search(line)) is not None:
            links[link[1]] = _generation(link[2]), int(link[3])
    capability, status = links.get("Cap", (0, 0)), links.get("Sta", (0, 0))
    has_acs = supported is not None or enabled is not None
    return Details(
        name,
        denied=any("<access denied>" in line for line in lines),
        acs=Acs(supported or (), enabled or ()) if has_acs else None,
        link=Link(*capability, *status) if links else None,
        regions=regions,
    )


def _generation(text: str) -> int:
    return generation(float(text)) if re.fullmatch(r"\d{1,4}(\.\d)?", text) else 0
