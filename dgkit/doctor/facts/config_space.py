# SPDX-License-Identifier: Apache-2.0
"""PCI configuration space: parser of the `config` file of a device in sysfs.

Without root the kernel returns only the first 64 bytes, which contain no capabilities (Linux,
drivers/pci/pci-sysfs.c, pci_read_config); root reads 256 bytes, or 4,096 bytes of a PCIe device.
Offsets and capability numbers: Linux, include/uapi/linux/pci_regs.h. No function raises on
malformed bytes: a capability list that loops or points outside the space is truncated.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_EXPRESS, _ACS, _RESIZABLE = 0x10, 0x0D, 0x15  # capabilities: PCIe; extended: ACS, resizable BAR
ROOT_PORT, UPSTREAM, DOWNSTREAM = "root port", "upstream port", "downstream port"
# Values of the field Device/Port Type of the PCIe capability.
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
    """Return the little-endian number at an offset; 0 beyond the end."""
    return int.from_bytes(raw[offset : offset + size], "little") if offset >= 0 else 0


def capabilities(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ID and offset of each capability in the first 256 bytes."""
    if len(raw) <= 64 or not _at(raw, 6, 2) & 0x10:  # Status: Capabilities List
        return
    offset, seen = _at(raw, 0x34, 1) & 0xFC, set[int]()
    while 0x40 <= offset < min(len(raw), 256) - 1 and offset not in seen:
        seen.add(offset)
        yield raw[offset], offset
        offset = raw[offset + 1] & 0xFC


def extended(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ID and offset of each extended capability, from offset 256."""
    offset, seen = 0x100, set[int]()
    while 0x100 <= offset <= len(raw) - 4 and offset not in seen:
        seen.add(offset)
        header = _at(raw, offset, 4)
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = header >> 20 & 0xFFC


def port(raw: bytes) -> str:
    """Return the PCIe device type, a value of PORTS; "" if the bytes do not contain it."""
    for number, offset in capabilities(raw):
        if number == _EXPRESS:
            return PORTS.get(_at(raw, offset + 2, 2) >> 4 & 0xF, "")
    return ""


class Link(msgspec.Struct, frozen=True):
    """Maximum and current generation (1 is 2.5 GT/s) and width of a PCIe link; 0 if unknown."""

    max_generation: int
    max_lanes: int
    generation: int
    lanes: int


def link(raw: bytes) -> Link | None:
    """Parse Link Capabilities and Link Status; None if the bytes do not contain them."""
    for number, offset in capabilities(raw):
        if number == _EXPRESS and offset + 0x14 <= len(raw):
            cap, status = _at(raw, offset + 0xC, 4), _at(raw, offset + 0x12, 2)
            return Link(cap & 0xF, cap >> 4 & 0x3F, status & 0xF, status >> 4 & 0x3F)
    return None


# The bits of ACS Capability and ACS Control, named as in lspci.
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
    """Access Control Services of a bridge: supported (`can`) and enabled (`on`) bits, by name."""

    can: tuple[str, ...]
    on: tuple[str, ...]


def acs(raw: bytes) -> Acs | None:
    """Parse the ACS capability; None if there is none or it was not read (see `has_extended`)."""
    for number, offset in extended(raw):
        if number == _ACS and offset + 8 <= len(raw):
            can, on = _at(raw, offset + 4, 2), _at(raw, offset + 6, 2)
            return Acs(_bit_names(can), _bit_names(on))
    return None


def _bit_names(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in ACS_BITS.items() if bits & bit)


def has_extended(raw: bytes) -> bool:
    """Return whether extended configuration space was read; False also for conventional PCI."""
    return len(raw) > 256


class Bar(msgspec.Struct, frozen=True):
    """A resizable BAR: its number, supported sizes and current size in bytes."""

    number: int
    sizes: tuple[int, ...]
    size: int


def resizable_bars(raw: bytes) -> tuple[Bar, ...]:
    """Parse the Resizable BAR capability; () if there is none or it was not read.

    Bit 4 of the capability register means 1 MiB. The bits of sizes from 2^28 MiB are in the upper
    half of the control register (PCIe 5.0, 7.8.6).
    """
    for number, offset in extended(raw):
        if number == _RESIZABLE:
            count = min(_at(raw, offset + 8, 4) >> 5 & 0x7, 6)
            bars = (_read_bar(raw, offset + 4 + 8 * index) for index in range(count))
            return tuple(bar for bar in bars if bar is not None)
    return ()


def _read_bar(raw: bytes, offset: int) -> Bar | None:
    if offset + 8 > len(raw):
        return None
    can, control = _at(raw, offset, 4), _at(raw, offset + 4, 4)
    bits = can >> 4 | control >> 16 << 28
    sizes = tuple(1 << 20 + bit for bit in range(44) if bits >> bit & 1)
    return Bar(control & 0x7, sizes, 1 << 20 + (control >> 8 & 0x3F))
