# SPDX-License-Identifier: Apache-2.0
"""Version numbers of firmware, DOCA, MLNX_OFED, rdma-core and shared libraries."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

_NUMBER = re.compile(r"\d{1,9}(?:[.-]\d{1,9})*")
_FILE = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9})*)$")


class Version(msgspec.Struct, frozen=True, eq=False):
    """Version number, compared part by part: `5.8` equals `5.8.0`. `text` is the original text."""

    parts: tuple[int, ...]
    text: str = ""

    def __str__(self) -> str:
        return self.text or ".".join(map(str, self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    # Not total_ordering: it keeps the comparisons of msgspec.Struct, which raise TypeError.
    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __le__(self, other: Version) -> bool:
        return self._key() <= other._key()

    def __gt__(self, other: Version) -> bool:
        return self._key() > other._key()

    def __ge__(self, other: Version) -> bool:
        return self._key() >= other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, ...]:
        last = max((at for at, part in enumerate(self.parts) if part), default=-1)
        return self.parts[: last + 1]


def version(*parts: int) -> Version:
    """Return a version to compare with: `version(5, 8)` is 5.8."""
    return Version(parts)


def find(text: str) -> Version | None:
    """Find the first number in a text, with the numbers joined to it by dots and dashes."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    return Version(tuple(int(part) for part in re.split("[.-]", match[0])), match[0])


def ofed(text: str) -> Version | None:
    """Parse `ofed_info -s`: MLNX_OFED_LINUX-5.8-1.0.1.1:, OFED-internal-24.10-0.7.0:."""
    match = re.search(r"OFED[\w-]{0,40}?-(\d{1,9}[\d.-]*)", text)
    return find(match[1]) if match else None


def driver(text: str) -> Version | None:
    """Parse /sys/module/mlx5_core/version of the driver in MLNX_OFED or DOCA: 24.10-0.7.0.

    Return None for the mainline driver, which has no such file or whose file contains 5.0-0.
    """
    found = find(text)
    return None if found is None or found == version(5) else found


def library(path: str) -> Version | None:
    """Parse the file name of a library: libdoca_common.so.2.5.0108, libibverbs.so.1.14.44.0."""
    match = _FILE.search(path)
    return find(match[1]) if match else None


def rdma_core(verbs: Version | None) -> Version | None:
    """Return the rdma-core release of libibverbs: 1.14.44.0 is ABI level 1.14 of rdma-core 44.0.

    rdma-core, Documentation/versioning.md.
    """
    if verbs is None or len(verbs.parts) < 3:
        return None
    return Version(verbs.parts[2:])


class Libraries(msgspec.Struct, frozen=True):
    """Shared libraries known to the loader.

    Attributes:
        files: Resolved path of each loadable library, by name without suffix (`libibverbs`).
        whys: The loader's error for each of the other libraries.
        why: Reason why nothing is known.
    """

    files: dict[str, str] = {}
    whys: dict[str, str] = {}
    why: str = ""

    def version(self, name: str) -> Version | None:
        """Return the version in the file name of a library."""
        return library(self.files.get(name, ""))


def libraries(machine: Machine) -> Libraries:
    """Query the dynamic loader in a child process."""
    reading = machine.read.probe("libraries")
    if not reading.ok or not isinstance(reading.data, dict):
        return Libraries(why=reading.why or "the probe of libraries gave no answer")
    files: dict[str, str] = {}
    whys: dict[str, str] = {}
    for name, value in reading.data.items():
        stem = str(name).partition(".so")[0]
        answer = value if isinstance(value, dict) else {}
        if path := str(answer.get("path") or ""):
            files.setdefault(stem, path)
        else:
            whys.setdefault(stem, str(answer.get("why") or ""))
    return Libraries(files, {stem: why for stem, why in whys.items() if stem not in files})
