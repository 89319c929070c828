# SPDX-License-Identifier: Apache-2.0
"""PacketPanel: the packets of a capture as rows, a packet by layers and bytes, rates of queues."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ... import html_cards
from ...files import replace_file
from ...units import printable, size_text
from ..base import scheduler
from ..base.panel import Panel, Viewers, handler
from .capture import Capture, Packet
from .layers import layers

if TYPE_CHECKING:
    from ..base.page_input import Json, Reply

COLUMNS = [
    "number", "time", "direction", "queue", "rule", "protocol", "source", "destination", "bytes",
    "info",
]  # fmt: skip
RATE_COLUMNS = ["queue", "direction", "packets", "dropped", "packets/s", "Mbit/s"]
_EVERY_S, _HIDDEN_S = 0.2, 3600.0  # between two looks at the file
_CATCH_UP_S = 0.2  # for which a view or a card waits for packets; the frame thread reads the rest
_RATE_NS = 2_000_000_000  # of these last packets the rates are
_MAX_BYTES = 64 << 20  # of all packets that are kept
_MAX_PACKETS = 10_000  # packets
_SHOWN = 200  # rows
_MAX_STATIC_ROWS = 12  # packets in a saved notebook
_MAX_FILTER = 200  # characters
_PCAP_HEAD = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)  # ns; Ethernet
_PCAP_END_NS = (1 << 32) * 10**9  # its times have 32 bits of seconds: until 2106
_LABEL = "software NIC"


class PacketPanel(Panel):
    """Panel that shows the packets of a capture while it grows: `PacketPanel("ping.pcapng")`.

    softdoca writes such a file if SOFTDOCA_CAPTURE names it: the frames of its Ethernet queues,
    with the queue and the rule of each. `dgkit mlx5 run --trace FILE.pcapng` writes the packets of
    RoCE v2, with the number of the queue pair, and the error of an entry.

    A click on a packet shows its layers and its bytes; a click on a byte its layer. The panel keeps
    the last 10,000 packets, of 64 MiB at most, and shows the last 200 that match the filter.

    Args:
        path: The file, which need not exist yet.

    Raises:
        ImportError: dpkt is not installed, which the extra `packets` has.
    """

    name = "packets"
    title = "Packets"

    def __init__(self, path: str | Path) -> None:
        self._capture, self._viewers = Capture(path), Viewers()
        self._lock = threading.RLock()  # of all below: the frame thread reads, handlers look
        self._packets: deque[Packet] = deque()
        self._bytes, self._first_ns = 0, 0
        self._words: list[str] = []
        self._filter, self._problem, self._behind = "", "", True
        self._counts: dict[tuple[int, bool], Counter[str]] = {}
        super().__init__()
        self._task = scheduler.start(self._follow(), self.fail)

    # What views ask for

    @handler
    def watch(self, view: str, on: bool) -> Json:
        """Record that a view is visible or hidden, and return the state to a visible one."""
        self._viewers.update(view, on)
        self._task.hasten(time.monotonic())
        return self._fields() if on else {}

    @handler
    def filter(self, text: str) -> Json:
        """Show only the packets whose row has all words of a text."""
        if len(text) > _MAX_FILTER:
            raise ValueError(f"the filter has {len(text)} characters; at most {_MAX_FILTER}")
        self._filter, self._words = text, text.lower().split()
        self.broadcast("frame", **self._fields())
        return {}

    @handler
    def show(self, number: int) -> Reply:
        """Return the layers and the bytes of a packet."""
        with self._lock:
            packet = self._find(number)
        found = [
            {"name": layer.name, "start": layer.start, "stop": layer.stop, "fields": layer.fields}
            for layer in layers(packet.data)
        ]
        return {"layers": found, "row": self._row(packet)}, [packet.data]

    @handler
    def pcap(self) -> Reply:
        """Return the packets that match the filter as a pcap file."""
        name = printable(f"{self._capture.path.stem}.pcap", kept="")
        return {"name": name}, [b"".join(self._pcap())]

    # What cells ask for

    def save(self, path: str | Path) -> int:
        """Save the packets that match the filter as a pcap file; return their number.

        Raises:
            ValueError: A packet's time is after 2106, where those of pcap end.
            OSError: The file cannot be written; an older one of the name is as it was.
        """
        self._read_all()
        head, *packets = self._pcap()
        replace_file(Path(path), b"".join([head, *packets]))
        return len(packets)

    def rows(self) -> list[dict[str, str]]:
        """Return the rows that match the filter, as the panel shows them, by column."""
        self._read_all()
        with self._lock:
            return [dict(zip(COLUMNS, self._row(p), strict=True)) for p in self._matching()]

    # The capture

    def _follow(self) -> scheduler.Steps:
        """Read the capture, then what is added while a view is visible; send it to the views."""
        unsent, drawn = False, 0.0
        while True:
            due = self._viewers.due()
            if due or self._behind:
                unsent |= self._read()
            now = time.monotonic()
            if due and unsent and now - drawn >= _EVERY_S:
                self.broadcast("frame", **self._fields())
                unsent, drawn = False, now
            wait = _EVERY_S if self._viewers.any_recent() else _HIDDEN_S
            yield self._behind or now + wait

    def _read(self) -> bool:
        """Read some of what was added to the capture; return whether the state has changed."""
        with self._lock:
            restarted = self._capture.restarted()
            if restarted:
                self._packets.clear()
                self._counts.clear()
                self._bytes, self._problem = 0, ""
            added, before = False, self._problem
            try:
                for packet in self._capture.read() if not self._problem else ():
                    self._store(packet)
                    added = True
            except (ValueError, OSError) as error:
                self._problem = printable(str(error), kept="")
            self._behind = not self._problem and self._capture.position < self._capture.size
            return restarted or added or self._problem != before

    def _read_all(self, seconds: float = inf) -> None:
        """Read to the end of the capture, for some seconds at most."""
        end = time.monotonic() + seconds
        while (self._read() or self._behind) and time.monotonic() < end:
            continue

    def _store(self, packet: Packet) -> None:
        self._first_ns = packet.time_ns if packet.number == 1 else self._first_ns
        self._packets.append(packet)
        self._bytes += len(packet.data)
        while len(self._packets) > _MAX_PACKETS or self._bytes > _MAX_BYTES:
            self._bytes -= len(self._packets.popleft().data)
        counts = self._counts.setdefault(_key(packet), Counter())
        counts["packets"] += 1
        counts["dropped"] += "dropped" in packet.rule

    def _find(self, number: int) -> Packet:
        first = self._packets[0].number if self._packets else 0
        if not self._packets or not first <= number <= self._packets[-1].number:
            kept = f"those kept are {first} to {first + len(self._packets) - 1}"
            raise ValueError(f"packet {number} is not here: {kept if self._packets else 'none is'}")
        return self._packets[number - first]

    def _matching(self, *, newest_first: bool = False) -> Iterable[Packet]:
        packets = reversed(self._packets) if newest_first else iter(self._packets)
        return (packet for packet in packets if self._matches(packet))

    def _matches(self, packet: Packet) -> bool:
        if not self._words:
            return True
        row = " ".join(self._row(packet)).lower()
        return all(word in row for word in self._words)

    def _pcap(self) -> Iterator[bytes]:
        """Return the head of a pcap file and each packet that matches the filter."""
        with self._lock:
            packets = list(self._matching())
        yield _PCAP_HEAD
        for packet in packets:
            if packet.time_ns >= _PCAP_END_NS:
                raise ValueError(
                    f"packet {packet.number} is of {packet.time_ns // 10**9:,} s since 1970; a "
                    f"pcap file's times end at {_PCAP_END_NS // 10**9 - 1:,} s, in 2106: save "
                    "others, by the filter"
                )
            size = len(packet.data)
            yield struct.pack("<IIII", *divmod(packet.time_ns, 10**9), size, size) + packet.data

    # What is shown

    def _row(self, packet: Packet) -> list[str]:
        words = packet.summary
        return [
            str(packet.number),
            f"{(packet.time_ns - self._first_ns) / 1e9:.6f} s",
            "sent" if packet.sent else "received",
            "" if packet.queue is None else str(packet.queue),
            packet.rule,
            words.protocol, words.source, words.destination, str(len(packet.data)), words.info,
        ]  # fmt: skip

    def _rates(self) -> list[list[str]]:
        since = time.time_ns() - _RATE_NS
        packets: Counter[tuple[int, bool]] = Counter()
        size: Counter[tuple[int, bool]] = Counter()
        for packet in reversed(self._packets):
            if packet.time_ns < since:
                break
            packets[_key(packet)] += 1
            size[_key(packet)] += len(packet.data)
        seconds = _RATE_NS / 1e9
        return [
            [
                "none" if key[0] < 0 else str(key[0]),
                "sent" if key[1] else "received",
                f"{counts['packets']:,}",
                f"{counts['dropped']:,}",
                f"{packets[key] / seconds:,.1f}",
                f"{8 * size[key] / seconds / 1e6:,.3f}",
            ]
            for key, counts in sorted(self._counts.items())
        ]

    def _status_line(self) -> str:
        if self._problem:
            return self._problem
        read, path = self._capture, printable(str(self._capture.path), kept="")
        if not read.count:
            return f"{path} has no packets yet."
        line = f"{read.count:,} packets of {path}, the last {len(self._packets):,} kept"
        if not self._behind:
            return line
        return f"{line}; reading: {size_text(read.position)} of {size_text(read.size)}"

    def _fields(self) -> Json:
        with self._lock:
            return self._shown()

    def _shown(self) -> Json:
        shown = list(islice(self._matching(newest_first=True), _SHOWN))
        return {
            "label": _LABEL,
            "provider": "softdoca",
            "line": self._status_line(),
            "columns": COLUMNS,
            "rows": [self._row(packet) for packet in reversed(shown)],
            "rate_columns": RATE_COLUMNS,
            "rates": self._rates(),
            "filter": self._filter,
        }

    def state(self) -> Json:
        """Return what is in the capture now; of a large one, what was read so far."""
        self._read_all(_CATCH_UP_S)
        return self._fields()

    def end(self) -> None:
        """Stop reading; the file stays."""
        self._task.cancel()

    def static_html(self) -> str:
        """Return the newest packets as a card."""
        self._read_all(_CATCH_UP_S)
        fields = self._fields()
        rows = fields["rows"][-_MAX_STATIC_ROWS:]
        body = html_cards.table("Newest packets", COLUMNS, rows) if rows else ""
        badge = html_cards.badge(_LABEL, warn=True)
        return html_cards.card(self.title, [("Capture", fields["line"])], badge=badge, body=body)

    def static_text(self) -> str:
        """Return the newest packet as text."""
        self._read_all(_CATCH_UP_S)
        if not self._packets:
            return f"{self.title}: {self._status_line()}"
        newest = self._packets[-1]
        return "\n".join([" ".join(self._row(newest)), *html_cards.hex_lines(newest.data)])


def _key(packet: Packet) -> tuple[int, bool]:
    return (-1 if packet.queue is None else packet.queue), packet.sent
