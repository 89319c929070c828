"""A machine in a file: all that was read of it, to be judged elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from .reader import Reader
from .reading import Reading

__all__ = ["Recorded", "Snapshot", "load"]

FORMAT, VERSION = "dgkit snapshot", 1
_LARGEST = 64 << 20  # bytes of a file that is read


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What stands in the file, as JSON.

    `source`: how it came to be: `recorded`, or `synthetic: ...` with what it was made after.
    `otherwise`: what a look that is not in `readings` gives: "unrecorded" for a real recording,
    "absent" for a synthetic one, which names all that there is.
    """

    format: str = FORMAT
    version: int = VERSION
    dgkit: str = ""
    taken: str = ""  # the day, as 2026-11-21
    source: str
    otherwise: Literal["unrecorded", "absent"] = "unrecorded"
    readings: dict[str, Reading]

    def save(self, path: Path) -> None:
        """Writes it, readable by people and by diff."""
        # with the tag and the version always in it
        text = {"format": self.format, "version": self.version, **msgspec.to_builtins(self)}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(text), indent=1) + b"\n")


class Recorded(Reader):
    """Answers from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def read(self, key: str) -> Reading:
        """As it was recorded."""
        found = self.snapshot.readings.get(key)
        if found is not None:
            return found
        if self.snapshot.otherwise == "absent":
            return Reading(fault="absent", why=f"there is no {key.partition(' ')[2]}")
        by = f"dgkit {self.snapshot.dgkit}" if self.snapshot.dgkit else "the dgkit that took it"
        return Reading(fault="unrecorded", why=f"{by} did not look at {key.partition(' ')[2]}")


def load(path: Path) -> Snapshot:
    """Reads a snapshot. ValueError: it is none, or of a version that is not known; OSError."""
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"{path} is larger than any snapshot ({_LARGEST >> 20} MiB)")
    try:
        found = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no snapshot of dgkit doctor: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        what = f"format {found.format!r}, version {found.version}"
        raise ValueError(f"{path} has {what}; this dgkit reads {FORMAT!r}, version {VERSION}")
    return found
