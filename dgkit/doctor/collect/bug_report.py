"""Readings of an nvidia-bug-report.log(.gz), as far as it reaches.

The log is a series of sections between lines of underscores. The first line of a section is
`*** PATH`, with `*** ls: ...` below it, for a file, or a command with its path; the first section
has `uname: ...`. It has no sysfs: PCI devices come from `lspci -nn`, without the bridges above
them, so distances between devices stay unknown.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from .reader import Reading
from .snapshot import Snapshot

MARK = "Start of NVIDIA bug report log file"
_MAX_BYTES = 256 << 20  # of the decompressed log
_RULE = re.compile(r"^_{20,}$", re.MULTILINE)
_LISTED = re.compile(
    r"^(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [^\[\n]{1,80}\[([0-9a-f]{4})\]: "
    r"[^\n]{0,300}?\[([0-9a-f]{4}:[0-9a-f]{4})\]",
    re.MULTILINE | re.IGNORECASE,
)
_UNAME = re.compile(r"^uname: (\S+) (\S+) (\S+) (.*?) (x86_64|aarch64|ppc64le)\b", re.MULTILINE)
# The doctor's reading for each command of the log, by the command's last words.
_COMMANDS = {
    "nvidia-smi --query": "run nvidia-smi -q",
    "nvidia-smi -q": "run nvidia-smi -q",
    "nvidia-smi topo -m": "run nvidia-smi topo -m",
    "lspci -nn": "run lspci -D -nn",
    "dmesg": "run dmesg",
}
_FILES = re.compile(r"/proc/(?:cmdline|cpuinfo|modules|version|driver/nvidia/\S+)|/etc/os-release")


def is_bug_report(data: bytes) -> bool:
    """Return whether a file, compressed or not, is such a log."""
    return MARK.encode() in _head(data)


def _head(data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data[:4096]
    try:
        return zlib.decompressobj(wbits=31).decompress(data, 4096)
    except zlib.error:
        return b""


def read(data: bytes) -> Snapshot:
    """Return the readings of a log.

    Raises:
        ValueError: The log is damaged, or larger than 256 MiB.
    """
    if data.startswith(b"\x1f\x8b"):
        try:
            unpacker = zlib.decompressobj(wbits=31)
            data = unpacker.decompress(data, _MAX_BYTES)
        except zlib.error as error:
            raise ValueError(f"it cannot be decompressed: {error}") from None
        if unpacker.unconsumed_tail:
            raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MiB")
    text = data.decode("utf-8", "replace")
    readings = dict(_readings(text))
    return Snapshot(source="recorded: by nvidia-bug-report.sh", readings=readings)


def _readings(text: str) -> Iterator[tuple[str, Reading]]:
    if found := _UNAME.search(text):
        names = ("system", "node", "release", "version", "machine")
        yield "ask uname", Reading(data=dict(zip(names, found.groups(), strict=True)))
    for section in _RULE.split(text):
        first, _, rest = section.strip("\n").partition("\n")
        if first.startswith("*** /"):
            yield from _file(first.removeprefix("*** ").strip().replace("/./", "/"), rest)
        else:
            yield from _command(first.strip(), rest)


def _file(path: str, rest: str) -> Iterator[tuple[str, Reading]]:
    head, _, body = rest.partition("\n")
    if not head.startswith("*** ls:"):  # "*** PATH does not exist" has none
        return
    if _FILES.fullmatch(path):
        yield f"text {path}", Reading(text=body)


def _command(line: str, body: str) -> Iterator[tuple[str, Reading]]:
    words = line.rpartition("/")[2].rstrip(":")
    key = _COMMANDS.get(words)
    if key is None:
        return
    yield key, Reading(text=body)
    if words == "lspci -nn":
        yield from _devices(body)


def _devices(text: str) -> Iterator[tuple[str, Reading]]:
    """Yield what sysfs would have of each device but the path to it."""
    folder, names = "/sys/bus/pci/devices", []
    for domain, place, kind, ids in _LISTED.findall(text):
        name = f"{domain or '0000'}:{place}".lower()
        names.append(name)
        uevent = f"PCI_CLASS={kind}00\nPCI_ID={ids.upper()}\n"
        yield f"text {folder}/{name}/uevent", Reading(text=uevent)
    if names:
        yield f"names {folder}", Reading(names=tuple(sorted(names)))
