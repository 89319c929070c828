"""Versions: of firmware, of DOCA, MLNX_OFED and rdma-core, found in whatever text names them."""

from __future__ import annotations

import re
from functools import total_ordering

import msgspec

from ..machine import Machine

__all__ = [
    "Libraries",
    "Version",
    "driver",
    "find",
    "libraries",
    "library",
    "ofed",
    "rdma_core",
    "version",
]

_NUMBER = re.compile(r"\d{1,9}(?:[.-]\d{1,9})*")
_FILE = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9})*)$")


@total_ordering
class Version(msgspec.Struct, frozen=True, eq=False):
    """Numbers that compare one by one; `5.8` and `5.8.0` are the same. `text` is for people."""

    parts: tuple[int, ...]
    text: str = ""

    def __str__(self) -> str:
        return self.text or ".".join(map(str, self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, ...]:
        last = max((at for at, part in enumerate(self.parts) if part), default=-1)
        return self.parts[: last + 1]


def version(*parts: int) -> Version:
    """`version(5, 8)`, to compare with."""
    return Version(parts)


def find(text: str) -> Version | None:
    """The first number in a text, with all that hangs on it by dots and dashes."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    return Version(tuple(int(part) for part in re.split("[.-]", match[0])), match[0])


def ofed(text: str) -> Version | None:
    """What `ofed_info -s` says: MLNX_OFED_LINUX-5.8-1.0.1.1:, OFED-internal-24.10-0.7.0:."""
    match = re.search(r"OFED[\w-]{0,40}?-(\d{1,9}[\d.-]*)", text)
    return find(match[1]) if match else None


def driver(text: str) -> Version | None:
    """What /sys/module/mlx5_core/version says: MLNX_OFED's and DOCA's driver has 24.10-0.7.0.

    The kernel's own has no such file, or says 5.0-0.
    """
    found = find(text)
    return None if found is None or found == version(5) else found


def library(path: str) -> Version | None:
    """That in a library's file name: libdoca_common.so.2.5.0108, libibverbs.so.1.14.44.0."""
    match = _FILE.search(path)
    return find(match[1]) if match else None


def rdma_core(verbs: Version | None) -> Version | None:
    """The release that libibverbs comes from: 1.14.44.0 is ABI level 1.14 of rdma-core 44.0.

    rdma-core, Documentation/versioning.md.
    """
    if verbs is None or len(verbs.parts) < 3:
        return None
    return Version(verbs.parts[2:])


class Libraries(msgspec.Struct, frozen=True):
    """`files`: the real file of each library that can be loaded: `libibverbs` -> its path.

    `whys`: what the loader said of those that cannot. `why`: why nothing can be told.
    """

    files: dict[str, str] = {}
    whys: dict[str, str] = {}
    why: str = ""

    def version(self, name: str) -> Version | None:
        """By the file's name."""
        return library(self.files.get(name, ""))


def libraries(machine: Machine) -> Libraries:
    """Asks the loader, in a process of its own."""
    reading = machine.read.probe("libraries")
    if not reading.ok or not isinstance(reading.data, dict):
        return Libraries(why=reading.why or "the probe of libraries gave no answer")
    files: dict[str, str] = {}
    whys: dict[str, str] = {}
    for name, said in reading.data.items():
        stem = str(name).partition(".so")[0]
        answer = said if isinstance(said, dict) else {}
        if path := str(answer.get("path") or ""):
            files.setdefault(stem, path)
        else:
            whys.setdefault(stem, str(answer.get("why") or ""))
    return Libraries(files, {stem: why for stem, why in whys.items() if stem not in files})
