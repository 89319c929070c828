# SPDX-License-Identifier: Apache-2.0
"""The layers of a frame, as dpkt decodes them: their bytes, their fields, and a row about them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

import dpkt

from ...units import printable
from . import roce

_MOST = 12  # layers of a frame
_HEX = frozenset({"type", "sum", "v", "id", "flags"})
_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")
_ICMP6 = {  # RFC 4443, 4861 and 3810
    128: "echo request",
    129: "echo reply",
    133: "router solicitation",
    134: "router advertisement",
    135: "neighbor solicitation",
    136: "neighbor advertisement",
    143: "multicast listener report",
}
_REFUSED = (dpkt.Error, ValueError, IndexError, TypeError, AttributeError, struct.error)


@dataclass(frozen=True)
class Layer:
    """A header, or what is behind the last one.

    Attributes:
        name: Its protocol, or `Data`.
        start: Offset of its first byte in the frame.
        stop: Offset behind its last byte.
        fields: Name and value of each field.
    """

    name: str
    start: int
    stop: int
    fields: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """Text of a row: the innermost protocol, the addresses, and the rest in words."""

    protocol: str
    source: str
    destination: str
    info: str


def _packets(data: bytes) -> list[dpkt.Packet]:
    """Return dpkt's objects of a frame, outermost first."""
    try:
        packet = dpkt.ethernet.Ethernet(data)
    except _REFUSED:
        return []
    found: list[dpkt.Packet] = []
    while isinstance(packet, dpkt.Packet) and len(found) < _MOST:
        found.append(packet)
        packet = packet.data
    return found


def layers(data: bytes) -> list[Layer]:
    """Return the layers of a frame; what dpkt cannot decode is `Data`."""
    found, start = [], 0
    for packet in _packets(data):
        try:
            size = len(packet) - len(packet.data)
            fields = _field_rows(packet)
        except _REFUSED:
            break
        if size < 0 or start + size > len(data):
            break
        found.append(Layer(_name(packet), start, start + size, fields))
        start += size
        if isinstance(packet, dpkt.udp.UDP) and packet.dport == roce.PORT:
            for name, length, texts in _roce(packet):
                found.append(Layer(name, start, start + length, texts))
                start += length
    if start < len(data):
        rest = len(data) - start
        found.append(Layer("Data", start, len(data), [("size", f"{rest:,} bytes")]))
    return found


def _roce(packet: dpkt.udp.UDP) -> roce.Headers:
    """Return the headers of RoCE v2, or none if the datagram is something else."""
    try:
        return roce.headers(bytes(packet.data))
    except struct.error:
        return []


def _name(packet: dpkt.Packet) -> str:
    kind = type(packet)
    return str(kind.__qualname__).replace("Ethernet", "Ethernet II")


def _field_rows(packet: dpkt.Packet) -> list[tuple[str, str]]:
    parts = getattr(packet, "__bit_fields__", {})
    names = [
        part
        for name in packet.__hdr_fields__
        for part in ([part for part, _ in parts[name]] if name in parts else [name])
    ]
    values = ((name, getattr(packet, name, None)) for name in names if not name.startswith("_"))
    return [(name, _field_text(name, value)) for name, value in values if value is not None]


def _field_text(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return _address_text(value)
    if isinstance(value, int) and name in _HEX:
        return f"{value:#x}"
    return printable(str(value), kept="")


def _address_text(value: bytes) -> str:
    if len(value) == 4:
        return socket.inet_ntop(socket.AF_INET, value)
    if len(value) == 16:
        return socket.inet_ntop(socket.AF_INET6, value)
    return value.hex(":")


def summary(data: bytes) -> Summary:
    """Return the summary of a frame for its row."""
    packets = _packets(data)
    if not packets:
        return Summary("malformed", "", "", f"{len(data)} bytes are no Ethernet frame")
    try:
        return _summarize(packets)
    except _REFUSED:
        return Summary("malformed", "", "", f"{_name(packets[-1])} cannot be decoded")


def _summarize(packets: list[dpkt.Packet]) -> Summary:
    ethernet, inner = packets[0], packets[-1]
    source, destination = _address_text(ethernet.src), _address_text(ethernet.dst)
    protocol, info = _name(inner), f"type {ethernet.type:#06x}"
    for packet in packets:
        if isinstance(packet, (dpkt.ip.IP, dpkt.ip6.IP6)):
            source, destination = _address_text(packet.src), _address_text(packet.dst)
            info = f"protocol {packet.p}"
        elif isinstance(packet, dpkt.arp.ARP):
            return Summary("ARP", source, destination, _summarize_arp(packet))
        elif isinstance(packet, dpkt.icmp.ICMP):
            return Summary("ICMP", source, destination, _summarize_icmp(packet))
        elif isinstance(packet, dpkt.icmp6.ICMP6):
            info = _ICMP6.get(packet.type, f"type {packet.type}, code {packet.code}")
            return Summary("ICMPv6", source, destination, info)
        elif isinstance(packet, dpkt.tcp.TCP):
            return Summary("TCP", source, destination, _summarize_tcp(packet))
        elif isinstance(packet, dpkt.udp.UDP):
            if packet.dport == roce.PORT and (headers := _roce(packet)):
                return Summary("RoCE v2", source, destination, roce.info(headers))
            info = f"{packet.sport} to {packet.dport}, {len(packet.data)} bytes"
            return Summary("UDP", source, destination, info)
    return Summary(protocol, source, destination, info)


def _summarize_arp(packet: dpkt.arp.ARP) -> str:
    asked, sender = _address_text(packet.tpa), _address_text(packet.spa)
    if packet.op == dpkt.arp.ARP_OP_REQUEST:
        return f"who has {asked}? tell {sender}"
    return f"{sender} is at {_address_text(packet.sha)}"


def _summarize_icmp(packet: dpkt.icmp.ICMP) -> str:
    names = {dpkt.icmp.ICMP_ECHO: "echo request", dpkt.icmp.ICMP_ECHOREPLY: "echo reply"}
    name = names.get(packet.type, f"type {packet.type}, code {packet.code}")
    echo = packet.data
    if isinstance(echo, dpkt.icmp.ICMP.Echo):
        return f"{name}, id {echo.id}, number {echo.seq}, {len(echo.data)} bytes"
    return name


def _summarize_tcp(packet: dpkt.tcp.TCP) -> str:
    flags = ", ".join(name for bit, name in enumerate(_FLAGS) if packet.flags >> bit & 1)
    return (
        f"{packet.sport} to {packet.dport}, {flags or 'no flag'}, seq {packet.seq}, "
        f"ack {packet.ack}, window {packet.win}, {len(packet.data)} bytes"
    )
