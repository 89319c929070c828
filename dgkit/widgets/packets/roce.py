# SPDX-License-Identifier: Apache-2.0
"""RoCE v2: InfiniBand's transport headers behind UDP port 4791, and a row about them.

The formats are those of the InfiniBand Architecture Specification, volume 1, chapter 9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

PORT = 4791
_BTH, _CRC = 12, 4  # bytes
_TRANSPORTS = {0: "RC", 1: "UC", 2: "RD", 3: "UD"}
_SEND = ["SEND first", "SEND middle", "SEND last", "SEND last with immediate", "SEND only"]
_WRITE = [name.replace("SEND", "WRITE") for name in _SEND]
_OPCODES = [
    *_SEND, "SEND only with immediate", *_WRITE, "WRITE only with immediate", "READ request",
    "READ response first", "READ response middle", "READ response last", "READ response only",
    "acknowledge", "atomic acknowledge", "COMPARE_SWAP", "FETCH_ADD",
    "opcode 21", "SEND last with invalidate", "SEND only with invalidate",
]  # fmt: skip
_NEGATIVE = [
    "sequence error", "invalid request", "remote access error", "remote operation error",
]  # fmt: skip
_Header = tuple[str, str, tuple[str, ...]]  # its name, its format, its fields
_RETH: _Header = ("RETH", ">QII", ("address", "rkey", "size"))
_ATOMIC: _Header = ("AtomicETH", ">QIQQ", ("address", "rkey", "operand", "compare"))
_AETH: _Header = ("AETH", ">I", ("syndrome",))
_ATOMIC_ACK: _Header = ("AtomicAckETH", ">Q", ("old value",))
_IMMEDIATE: _Header = ("ImmDt", ">I", ("immediate",))
_INVALIDATE: _Header = ("IETH", ">I", ("rkey",))
_EXTENDED = {
    3: [_IMMEDIATE], 5: [_IMMEDIATE], 6: [_RETH], 9: [_IMMEDIATE], 10: [_RETH],
    11: [_RETH, _IMMEDIATE], 12: [_RETH], 13: [_AETH], 15: [_AETH], 16: [_AETH], 17: [_AETH],
    18: [_AETH, _ATOMIC_ACK], 19: [_ATOMIC], 20: [_ATOMIC], 22: [_INVALIDATE],
    23: [_INVALIDATE],
}  # fmt: skip
_HEX = frozenset({"address", "rkey", "immediate", "operand", "compare", "old value"})

Headers = list[tuple[str, int, list[tuple[str, str]]]]


def headers(payload: bytes) -> Headers:
    """Return name, size and fields of each header of a UDP datagram, of its data and its CRC.

    Raises:
        struct.error: It ends within a header.
    """
    opcode, bits, _, to, at = struct.unpack_from(">BBHII", payload)
    number = opcode & 31
    name = _OPCODES[number] if number < len(_OPCODES) else f"opcode {number}"
    fields = [
        ("opcode", f"{_TRANSPORTS.get(opcode >> 5, 'unknown')} {name}"),
        ("queue pair", f"{to & 0xFFFFFF:#x}"),
        ("sequence number", str(at & 0xFFFFFF)),
        ("padding", str(bits >> 4 & 3)),
        ("acknowledge", "requested" if at >> 31 else "not requested"),
    ]
    found = [("BTH", _BTH, fields)]
    position = _BTH
    for name, form, names in _EXTENDED.get(number, []):
        values = struct.unpack_from(form, payload, position)
        found.append((name, struct.calcsize(form), list(_texts(name, names, values))))
        position += struct.calcsize(form)
    if len(payload) - position < _CRC:
        raise struct.error(f"the datagram has {len(payload)} bytes, and ends within its headers")
    if rest := len(payload) - position - _CRC:
        found.append(("Data", rest, [("size", f"{rest - (bits >> 4 & 3):,} bytes")]))
    return [*found, ("ICRC", _CRC, [("value", payload[-_CRC:].hex())])]


def _texts(
    header: str, names: tuple[str, ...], values: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    if header == "AETH":
        yield "syndrome", _syndrome_text(values[0] >> 24)
        yield "messages", str(values[0] & 0xFFFFFF)
        return
    for name, value in zip(names, values, strict=True):
        yield name, f"{value:#x}" if name in _HEX else f"{value:,}"


def _syndrome_text(code: int) -> str:
    kind, number = code >> 5, code & 31
    if kind == 3:
        known = number < len(_NEGATIVE)
        return _NEGATIVE[number] if known else f"negative acknowledge {number}"
    return {0: "acknowledge", 1: "receiver not ready"}.get(kind, f"{code:#04x}")


def info(found: Headers) -> str:
    """Summarize the headers for a packet's row: opcode, queue pair, sequence number, fields."""
    bth, *others = found
    fields = dict(bth[2])
    words = [f"{fields['opcode']} to queue pair {fields['queue pair']}", fields["sequence number"]]
    for name, _, values in others:
        if name in ("RETH", "AtomicETH"):
            words += [f"{field} {value}" for field, value in values if field != "compare"]
        elif name == "Data" or (name == "AETH" and values[0][1] != "acknowledge"):
            words.append(values[0][1])
    return ", ".join(words)
