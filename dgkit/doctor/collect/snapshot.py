"""A machine in a file: all that was read of it, to be judged elsewhere."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ..machine import SIZE, Machine
from ..redact.filter import kept
from ..redact.redactor import Pseudonyms
from ..runner import Progress, read_everything
from .live import ASKED, FULL_S, Live
from .reader import Reader
from .reading import Reading

__all__ = ["Recorded", "Snapshot", "load", "record"]

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


def record(
    machine: Machine,
    *,
    word: str = "",
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> Snapshot:
    """All that any check looks at on this machine, for each goal, with nothing secret in it.

    `word`: two recordings with the same word have the same pseudonyms, as a host's and its DPU's
    should. The rest is as in diagnose(). ValueError: `machine` is a recorded one itself.
    """
    from ..._version import __version__

    reader = machine.read
    if not isinstance(reader, Live):
        raise ValueError(f"{machine.name} cannot be recorded: it is a recording")
    reader.together([f"ask {what}" for what in ASKED])
    read_everything(machine, size=size, limit_s=limit_s, progress=progress)
    made = {key: kept(key, one) for key, one in reader.seen().items()}
    return Snapshot(
        dgkit=__version__,
        taken=datetime.date.today().isoformat(),
        source="recorded",
        readings=Pseudonyms(word).all({key: one for key, one in made.items() if one is not None}),
    )


def load(path: Path) -> Snapshot:
    """Reads a snapshot. ValueError names the file and says why it is none; OSError."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, no snapshot of dgkit doctor")
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"{path} is larger than any snapshot ({_LARGEST >> 20} MiB)")
    if data.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path} is compressed: gunzip it first")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if (head.format, head.version) == (FORMAT, VERSION):
            found = msgspec.json.decode(data, type=Snapshot)
            for what, kind in _ANSWERS.items():  # which facts rely on
                if (one := found.readings.get(f"ask {what}")) and one.ok:
                    msgspec.convert(one.data, kind)
            return found
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no snapshot of dgkit doctor: {error}") from None
    what = f"format {head.format!r}, version {head.version}"
    raise ValueError(f"{path} has {what}; this dgkit reads {FORMAT!r}, version {VERSION}")


class _Head(msgspec.Struct):
    """What is looked at first: the rest may be otherwise in another version."""

    format: str
    version: int


_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # what the system may say
# What `ask` gives.
_ANSWERS: dict[str, Any] = {
    "uname": dict[str, str],
    "page-size": _Number,
    "memlock": dict[str, _Number | None],
    "open-files": dict[str, _Number | None],
    "euid": _Number,
    "cpus": list[_Number],
    "libc": list[str],
    "python": str,
    "hostname": str,
    "environ": dict[str, str],
    "dgkit": dict[str, str | _Number],
    "packages": dict[str, str],
}
