# SPDX-License-Identifier: Apache-2.0
"""Readings of sysfs for the PCI devices that another program listed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

import msgspec

from .reader import Reading

DEVICES = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


class Listed(msgspec.Struct, kw_only=True):
    """A PCI function as far as a listing has it; "", None or b"" for what it lacks.

    Attributes:
        address: Address with its domain.
        path: Path in /sys/devices, through the bridges above.
        kind: Class, such as `020000`.
        ids: Vendor and device, such as `15b3:1021`.
        subsystem: Those of the subsystem.
        driver: Driver that holds it.
        numa: NUMA node.
        config: Beginning of the configuration space.
        files: Further files of its folder, by name.
    """

    address: str
    kind: str
    ids: str
    path: str = ""
    subsystem: str = ""
    driver: str = ""
    numa: int | None = None
    config: bytes = b""
    files: Mapping[str, str] = {}


def full(address: str) -> str:
    """Return a PCI address with its domain, in lower case; "" if the text is no address."""
    match = ADDRESS.fullmatch(address)
    return f"{match[1] or '0000'}:{match[2]}".lower() if match else ""


def readings(devices: Mapping[str, Listed]) -> Iterator[tuple[str, Reading]]:
    """Yield the readings of all devices, by address."""
    for name, device in devices.items():
        folder = f"{DEVICES}/{name}"
        lines = {"DRIVER": device.driver, "PCI_CLASS": device.kind, "PCI_ID": device.ids.upper()}
        lines["PCI_SUBSYS_ID"] = device.subsystem.upper()
        uevent = "".join(f"{key}={value}\n" for key, value in lines.items() if value)
        yield f"text {folder}/uevent", Reading(text=uevent)
        if device.path:
            yield f"link {folder}", Reading(text=device.path)
        if device.numa is not None:
            yield f"text {folder}/numa_node", Reading(text=f"{device.numa}\n")
        if device.config:
            yield f"raw {folder}/config", Reading(raw=device.config[:4096])
        for file, text in device.files.items():
            yield f"text {folder}/{file}", Reading(text=f"{text}\n")
    if devices:
        yield f"names {DEVICES}", Reading(names=tuple(sorted(devices)))


_START = re.compile(rf"^{ADDRESS.pattern} ", re.MULTILINE | re.IGNORECASE)
_FIRST = re.compile(
    rf"({ADDRESS.pattern}) [^\n]{{0,100}}?\[(?P<kind>[0-9a-f]{{4}})\]: [^\n]{{0,300}}?"
    r"\[(?P<ids>[0-9a-f]{4}:[0-9a-f]{4})\]",
    re.IGNORECASE,
)
_SUBSYSTEM = re.compile(
    r"^[ \t]{1,8}Subsystem: [^\n]{0,300}\[([0-9a-f]{4}:[0-9a-f]{4})\]$", re.MULTILINE
)
_DRIVER = re.compile(r"^[ \t]{1,8}Kernel driver in use: ([\w-]{1,40})$", re.MULTILINE)
_NODE = re.compile(r"^[ \t]{1,8}NUMA node: (\d{1,4})$", re.MULTILINE)
_LINK = re.compile(
    r"^[ \t]{1,16}Lnk(Cap|Sta):[^\n]{0,80}?Speed ([\d.]{1,5})GT/s[^\n]{0,40}?Width x(\d{1,2})",
    re.MULTILINE,
)
_BYTES = re.compile(r"^[0-9a-f]{2,3}:((?: [0-9a-f]{2}){16})$", re.MULTILINE)
_NAMES = {"Cap": "max_link", "Sta": "current_link"}


def lspci(text: str) -> dict[str, Listed]:
    """Parse `lspci -nn`, also with -vvv and -xxxx: the devices by address."""
    found = {}
    starts = [match.start() for match in _START.finditer(text)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        block = text[start:end]
        if match := _FIRST.match(block):
            device = _parse_block(block, match["kind"], match["ids"])
            device.address = full(match[1])
            found[device.address] = device
    return found


def _parse_block(block: str, kind: str, ids: str) -> Listed:
    subsystem, driver, node = (p.search(block) for p in (_SUBSYSTEM, _DRIVER, _NODE))
    files = {}
    for name, speed, width in _LINK.findall(block):
        files[f"{_NAMES[name]}_speed"] = f"{float(speed):.1f} GT/s PCIe"
        files[f"{_NAMES[name]}_width"] = width
    return Listed(
        address="", kind=f"{kind}00", ids=ids, subsystem=subsystem[1] if subsystem else "",
        driver=driver[1] if driver else "", numa=int(node[1]) if node else None, files=files,
        config=bytes.fromhex("".join(_BYTES.findall(block))),
    )  # fmt: skip
