# SPDX-License-Identifier: Apache-2.0
"""Captures as softdoca writes them: blocks of pcapng, and a ping."""

import struct

import dpkt

ECHO = dpkt.icmp.ICMP.Echo(id=7, seq=1, data=b"hello")
PING = bytes(
    dpkt.ethernet.Ethernet(
        dst=b"\2\0\0\0\0\2", src=b"\2\0\0\0\0\1", type=0x0800,
        data=dpkt.ip.IP(
            src=b"\n\0\0\1", dst=b"\n\0\0\2", p=1, data=dpkt.icmp.ICMP(type=8, data=ECHO)
        ),
    )
)  # fmt: skip
BEGIN = 1_700_000_000_123_456_789  # ns


def option(code: int, value: bytes) -> bytes:
    """Return an option of a block."""
    return struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def block(kind: int, body: bytes) -> bytes:
    """Return a block."""
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


HEAD = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
HEAD += block(1, struct.pack("<HHI", 1, 0, 0) + option(9, b"\t") + option(0, b""))


def packet(
    data: bytes, *, at_ns: int = 0, sent: bool = False, queue: int | None = None, rule: str = "",
    extra: bytes = b"",
) -> bytes:  # fmt: skip
    """Return the block of a packet; `extra` are further options."""
    options = option(2, struct.pack("<I", 2 if sent else 1))
    options += b"" if queue is None else option(6, struct.pack("<I", queue))
    options += (option(1, rule.encode()) if rule else b"") + extra
    head = struct.pack("<III", 0, *divmod(BEGIN + at_ns, 1 << 32))
    sizes = struct.pack("<II", len(data), len(data))
    return block(6, head + sizes + data + b"\0" * (-len(data) % 4) + options + option(0, b""))
