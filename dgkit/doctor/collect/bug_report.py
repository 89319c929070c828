# SPDX-License-Identifier: Apache-2.0
"""Readings of an nvidia-bug-report.log(.gz), as far as it reaches.

The log is a series of sections between lines of underscores. The first line of a section is
`*** PATH`, with `*** ls: ...` below it, for a file, or a command with its path; the first section
has `uname: ...`. It has no sysfs: PCI devices come from `lspci -nn`, without the bridges above
them, so distances between devices stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import packed, pci_listing
from .reader import Reading
from .snapshot import Snapshot

MARK = "Start of NVIDIA bug report log file"
_RULE = re.compile(r"^_{20,}$", re.MULTILINE)
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


def is_log(head: bytes) -> bool:
    """Return whether decompressed content begins like a log of nvidia-bug-report.sh."""
    return MARK.encode() in head


def read(data: bytes) -> Snapshot:
    """Return the readings of a log.

    Raises:
        ValueError: The log is damaged, or larger than 256 MiB.
    """
    text = packed.unpacked(data).decode("utf-8", "replace")
    return Snapshot(
        source="recorded: by nvidia-bug-report.sh", readings=dict(_parse_readings(text))
    )


def _parse_readings(text: str) -> Iterator[tuple[str, Reading]]:
    if found := _UNAME.search(text):
        names = ("system", "node", "release", "version", "machine")
        yield "ask uname", Reading(data=dict(zip(names, found.groups(), strict=True)))
    for section in _RULE.split(text):
        first, _, rest = section.strip("\n").partition("\n")
        if first.startswith("*** /"):
            yield from _parse_file(first.removeprefix("*** ").strip().replace("/./", "/"), rest)
        else:
            yield from _parse_command(first.strip(), rest)


def _parse_file(path: str, rest: str) -> Iterator[tuple[str, Reading]]:
    head, _, body = rest.partition("\n")
    if not head.startswith("*** ls:"):  # "*** PATH does not exist" has none
        return
    if _FILES.fullmatch(path):
        yield f"text {path}", Reading(text=body)


def _parse_command(line: str, body: str) -> Iterator[tuple[str, Reading]]:
    words = line.rpartition("/")[2].rstrip(":")
    key = _COMMANDS.get(words)
    if key is None:
        return
    yield key, Reading(text=body)
    if words == "lspci -nn":
        yield from pci_listing.readings(pci_listing.lspci(body))
