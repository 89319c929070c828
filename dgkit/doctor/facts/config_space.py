"""PCI configuration space: what stands in a device's `config` file.

Without root the kernel shows the first 64 bytes alone, which hold no capability (Linux,
drivers/pci/pci-sysfs.c, pci_read_config). Root sees 256 bytes, or 4,096 of a PCIe device. Offsets
and numbers of capabilities: Linux, include/uapi/linux/pci_regs.h. Nothing here raises, whatever the
bytes are: a list that runs in a circle or out of the space ends there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

__all__ = [
    "ACS_BITS",
    "DOWNSTREAM",
    "PORTS",
    "ROOT_PORT",
    "UPSTREAM",
    "Acs",
    "Bar",
    "Link",
    "acs",
    "link",
    "port",
    "resizable_bars",
    "whole",
]

_EXPRESS, _ACS, _RESIZABLE = 0x10, 0x0D, 0x15  # capabilities: PCIe; extended: ACS, resizable BAR
ROOT_PORT, UPSTREAM, DOWNSTREAM = "root port", "upstream port", "downstream port"
# The field Device/Port Type of the PCIe capability.
PORTS = {
    0x0: "endpoint",
    0x1: "legacy endpoint",
    0x4: ROOT_PORT,
    0x5: UPSTREAM,
    0x6: DOWNSTREAM,
    0x7: "bridge to PCI",
    0x8: "bridge to PCIe",
    0x9: "integrated endpoint",
    0xA: "event collector",
}


def _at(raw: bytes, offset: int, size: int) -> int:
    """A little-endian number, 0 where there is none."""
    return int.from_bytes(raw[offset : offset + size], "little") if offset >= 0 else 0


def capabilities(raw: bytes) -> Iterator[tuple[int, int]]:
    """The number and offset of each capability in the first 256 bytes."""
    if len(raw) <= 64 or not _at(raw, 6, 2) & 0x10:  # Status: capabilities list
        return
    offset, seen = _at(raw, 0x34, 1) & 0xFC, set[int]()
    while 0x40 <= offset < min(len(raw), 256) - 1 and offset not in seen:
        seen.add(offset)
        yield raw[offset], offset
        offset = raw[offset + 1] & 0xFC


def extended(raw: bytes) -> Iterator[tuple[int, int]]:
    """The number and offset of each extended capability, from 256 on."""
    offset, seen = 0x100, set[int]()
    while 0x100 <= offset <= len(raw) - 4 and offset not in seen:
        seen.add(offset)
        header = _at(raw, offset, 4)
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = header >> 20 & 0xFFC


def port(raw: bytes) -> str:
    """What a PCIe device is, one of PORTS; "" if the bytes do not tell."""
    for number, offset in capabilities(raw):
        if number == _EXPRESS:
            return PORTS.get(_at(raw, offset + 2, 2) >> 4 & 0xF, "")
    return ""


class Link(msgspec.Struct, frozen=True):
    """Of a PCIe link: generation (1 is 2.5 GT/s) and lanes, at most and now; 0: not told."""

    most_generation: int
    most_lanes: int
    generation: int
    lanes: int


def link(raw: bytes) -> Link | None:
    """From Link Capabilities and Link Status; None if the bytes do not tell."""
    for number, offset in capabilities(raw):
        if number == _EXPRESS and offset + 0x14 <= len(raw):
            most, now = _at(raw, offset + 0xC, 4), _at(raw, offset + 0x12, 2)
            return Link(most & 0xF, most >> 4 & 0x3F, now & 0xF, now >> 4 & 0x3F)
    return None


# The bits of ACS Capability and ACS Control, as lspci names them.
ACS_BITS = {
    0x01: "SrcValid",
    0x02: "TransBlk",
    0x04: "ReqRedir",
    0x08: "CmpltRedir",
    0x10: "UpstreamFwd",
    0x20: "EgressCtrl",
    0x40: "DirectTrans",
}


class Acs(msgspec.Struct, frozen=True):
    """Access Control Services of one bridge: what it can do, and what is switched on."""

    can: tuple[str, ...]
    on: tuple[str, ...]


def acs(raw: bytes) -> Acs | None:
    """None: the bridge has no ACS, or fewer than 4,096 bytes were read (see `whole`)."""
    for number, offset in extended(raw):
        if number == _ACS and offset + 8 <= len(raw):
            can, on = _at(raw, offset + 4, 2), _at(raw, offset + 6, 2)
            return Acs(_named(can), _named(on))
    return None


def _named(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in ACS_BITS.items() if bits & bit)


def whole(raw: bytes) -> bool:
    """Whether the extended capabilities were read; False also for a PCI device that has none."""
    return len(raw) > 256


class Bar(msgspec.Struct, frozen=True):
    """A BAR that can be resized: its number, sizes in bytes that it may have, and its size now."""

    number: int
    sizes: tuple[int, ...]
    size: int


def resizable_bars(raw: bytes) -> tuple[Bar, ...]:
    """From the resizable BAR capability; () if there is none or it was not read.

    Sizes from 1 MiB (bit 4 of the capability) on; from 2^28 MiB on they stand in the control's
    upper half (PCIe 5.0, 7.8.6).
    """
    for number, offset in extended(raw):
        if number == _RESIZABLE:
            count = min(_at(raw, offset + 8, 4) >> 5 & 0x7, 6)
            found = (_bar(raw, offset + 4 + 8 * at) for at in range(count))
            return tuple(one for one in found if one is not None)
    return ()


def _bar(raw: bytes, offset: int) -> Bar | None:
    if offset + 8 > len(raw):
        return None
    can, control = _at(raw, offset, 4), _at(raw, offset + 4, 4)
    bits = can >> 4 | control >> 16 << 28
    sizes = tuple(1 << 20 + bit for bit in range(44) if bits >> bit & 1)
    return Bar(control & 0x7, sizes, 1 << 20 + (control >> 8 & 0x3F))
