# SPDX-License-Identifier: Apache-2.0
"""The PCI configuration space of a function, as sysfs shows it to root, up to its last capability.

Layouts: PCI Express Base Specification, Type 0 and Type 1 headers, PCI Express capability, and the
extended capabilities AER, ACS, Device Serial Number and Resizable BAR (linux/pci_regs.h has them).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

EXPRESS_AT = 0x60
ENDPOINT, ROOT_PORT, UPSTREAM, DOWNSTREAM, INTEGRATED = 0, 4, 5, 6, 9
_AER, _SERIAL, _ACS, _REBAR = 0x0001, 0x0003, 0x000D, 0x0015
MIB = 1 << 20


@dataclass(frozen=True)
class Link:
    """Generation and lanes; (0, 0): there is none."""

    gen: int
    lanes: int


@dataclass(frozen=True)
class Function:
    """What the bytes are made of. `buses`: primary, secondary, subordinate, of a bridge.

    `acs`: (capability, control), None if the function has no ACS. `rebar`: for BAR 1, (sizes that
    it could have, its size), in bytes. `express`: None is conventional PCI.
    """

    vendor: int
    device: int
    kind: int  # the class code, three bytes
    express: int | None
    at_most: Link
    now: Link
    buses: tuple[int, int, int] | None = None
    many: bool = False  # other functions are beside it
    bars: tuple[tuple[int, int], ...] = ()  # number, its register's 64 bits
    acs: tuple[int, int] | None = None
    rebar: tuple[tuple[int, ...], int] | None = None
    serial: int = 0


def config(function: Function) -> bytes:
    """All of it."""
    space = bytearray(0x100)
    _header(space, function)
    _capability(space, 0x40, 0x01, 0x60 if function.express is not None else 0, 0x4803)
    if function.express is None:
        return bytes(space)
    _express(space, function)
    parts = [(_AER, 2, bytes(0x44))]
    if function.serial:
        parts.append((_SERIAL, 1, struct.pack("<Q", function.serial)))
    if function.acs is not None:
        parts.append((_ACS, 1, struct.pack("<HH", *function.acs)))
    if function.rebar is not None:
        parts.append((_REBAR, 1, _rebar(*function.rebar)))
    return bytes(space) + _extended(parts)


def _header(space: bytearray, function: Function) -> None:
    struct.pack_into("<HHHH", space, 0, function.vendor, function.device, 0x0406, 0x0010)
    space[8] = 0xA1
    space[9:12] = function.kind.to_bytes(3, "little")
    space[12] = 0x10
    space[14] = (0x80 if function.many else 0) | (1 if function.buses else 0)
    if function.buses:
        space[0x18:0x1B] = bytes(function.buses)
    for number, value in function.bars:
        struct.pack_into("<Q", space, 0x10 + 4 * number, value)
    space[0x34] = 0x40


def _capability(space: bytearray, at: int, name: int, following: int, word: int) -> None:
    struct.pack_into("<BBH", space, at, name, following, word)


def _express(space: bytearray, function: Function) -> None:
    kind = function.express or 0
    slot = 1 << 8 if kind in (ROOT_PORT, DOWNSTREAM) else 0
    _capability(space, EXPRESS_AT, 0x10, 0, 2 | kind << 4 | slot)
    if kind == INTEGRATED:
        return
    most, now = function.at_most, function.now
    struct.pack_into("<I", space, EXPRESS_AT + 0x04, 0x8FE2 | 1 << 28)  # FLR, 512-byte payload
    struct.pack_into("<I", space, EXPRESS_AT + 0x0C, most.gen | most.lanes << 4 | 0x400000)
    active = 1 << 13 if slot and now.gen else 0
    struct.pack_into("<H", space, EXPRESS_AT + 0x12, now.gen | now.lanes << 4 | active)
    speeds = sum(1 << gen for gen in range(1, most.gen + 1))
    struct.pack_into("<IH", space, EXPRESS_AT + 0x2C, speeds, most.gen)


def _extended(parts: list[tuple[int, int, bytes]]) -> bytes:
    """The chain of extended capabilities from 0x100 on, each at a multiple of 16."""
    found, at = b"", 0x100
    for number, (name, version, body) in enumerate(parts):
        size = -(-(4 + len(body)) // 16) * 16
        following = at + size if number + 1 < len(parts) else 0
        head = struct.pack("<I", name | version << 16 | following << 20)
        found += (head + body).ljust(size, b"\0")
        at += size
    return found


def _rebar(sizes: tuple[int, ...], now: int) -> bytes:
    possible = sum(1 << (4 + _log(size)) for size in sizes)
    return struct.pack("<II", possible & 0xFFFFFFFF, 1 | 1 << 5 | _log(now) << 8)


def _log(size: int) -> int:
    """0 for 1 MiB, 1 for 2 MiB."""
    return (size // MIB).bit_length() - 1
