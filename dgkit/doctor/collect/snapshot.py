# SPDX-License-Identifier: Apache-2.0
"""Snapshot of a machine: a JSON file with everything that the checks read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ...files import replace_file
from ...json_input import check_depth
from . import packed
from .reader import Reader, Reading, note

FORMAT, VERSION = "dgkit snapshot", 1
_MAX_BYTES = 64 << 20  # of a snapshot file


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Content of a snapshot file.

    Attributes:
        format: Always "dgkit snapshot".
        version: Version of the format.
        dgkit: Version of dgkit that took the snapshot.
        taken: Date, such as 2026-11-21.
        source: `recorded`, or `synthetic: ...` with the document that the machine is modelled on.
        otherwise: Fault reported for a key that is not in `readings`: "unrecorded" in a recording,
            "absent" in a synthetic snapshot, which is complete.
        readings: Readings by key.
    """

    format: str = FORMAT
    version: int = VERSION
    dgkit: str = ""
    taken: str = ""
    source: str
    otherwise: Literal["unrecorded", "absent"] = "unrecorded"
    readings: dict[str, Reading]

    def save(self, path: Path) -> None:
        """Write the file as JSON with one reading per line, so that people and diff can read it."""
        # `format` and `version` are always written, although they have defaults.
        head = {"format": self.format, "version": self.version, **msgspec.to_builtins(self)}
        readings = _lines(head.pop("readings"), b"  ")
        text = b'{\n%b,\n "readings": {\n%b\n }\n}\n' % (_lines(head, b" "), readings)
        replace_file(path, text)


def _lines(fields: dict[str, Any], indent: bytes) -> bytes:
    """Return the fields of a JSON object, one per line."""
    encode = msgspec.json.encode
    return b",\n".join(b"%b%b: %b" % (indent, encode(n), encode(v)) for n, v in fields.items())


class RecordedReader(Reader):
    """Reader of a snapshot."""

    waits = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def read(self, key: str) -> Reading:
        """Return the recorded reading, or one with the fault `unrecorded` or the recorded fault."""
        return note(key, self._recorded(key))

    def _recorded(self, key: str) -> Reading:
        found = self.snapshot.readings.get(key)
        if found is not None:
            return found
        if self.snapshot.otherwise == "absent":
            return Reading(fault="absent", why=f"there is no {key.partition(' ')[2]}")
        by = self.snapshot.source.partition(": by ")[2] or "the dgkit that took it"
        by = f"dgkit {self.snapshot.dgkit}" if self.snapshot.dgkit else by
        return Reading(fault="unrecorded", why=f"{by} did not record {key.partition(' ')[2]}")


def load(path: Path) -> Snapshot:
    """Read a snapshot file.

    Raises:
        ValueError: The file is not a snapshot; the message names it and gives the reason.
        OSError: The file cannot be read.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a directory, not a snapshot of dgkit doctor")
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"{path} is larger than the limit of a snapshot ({_MAX_BYTES >> 20} MiB)")
    if data.startswith(b"\x1f\x8b"):
        what = "is compressed: gunzip it first" if packed.head(data) else "is a damaged gzip file"
        raise ValueError(f"{path} {what}")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if (head.format, head.version) == (FORMAT, VERSION):
            found = msgspec.json.decode(data, type=Snapshot)
            for reading in found.readings.values():
                check_depth(reading.data)
            for query, kind in _ANSWERS.items():
                if (answer := found.readings.get(f"ask {query}")) and answer.ok:
                    msgspec.convert(answer.data, kind)
            return found
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a snapshot of dgkit doctor: {error}") from None
    what = f"format {head.format!r}, version {head.version}"
    raise ValueError(f"{path} has {what}; this dgkit reads {FORMAT!r}, version {VERSION}")


class _Head(msgspec.Struct):
    """Fields that are decoded first: the others depend on the version."""

    format: str
    version: int


_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
# The types of the `ask` answers, on which the facts rely.
_ANSWERS: dict[str, Any] = {
    "uname": dict[str, str],
    "page-size": _Number,
    "memlock": dict[str, _Number | None],
    "open-files": dict[str, _Number | None],
    "address-space": dict[str, _Number | None],
    "euid": _Number,
    "cpus": list[_Number],
    "libc": list[str],
    "python": str,
    "hostname": str,
    "environ": dict[str, str],
    "dgkit": dict[str, str | _Number],
    "packages": dict[str, str],
    "device-files": dict[str, str],
}
