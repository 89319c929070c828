"""Recording of this machine as a redacted snapshot."""

from __future__ import annotations

import contextlib
import datetime

from .._version import __version__
from .collect.live import FULL_S, QUERIES, LiveReader
from .collect.snapshot import Snapshot
from .facts import nic_choice
from .machine import SIZE, Machine
from .redact.filter import filter_reading
from .redact.redactor import Redactor
from .runner import Progress, read_everything


def record(
    machine: Machine,
    *,
    word: str = "",
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> Snapshot:
    """Record everything that the checks read on this machine, for every goal, without secrets.

    Args:
        machine: This machine, with a live reader.
        word: Recordings with the same word have the same pseudonyms, which the recordings of a host
            and its DPU should have; if empty, pseudonyms are random.
        size: Bytes of GPU memory to export at once, as in diagnose().
        limit_s: Time limit of the checks, as in diagnose().
        progress: Called with the number of completed checks and their total.

    Raises:
        ValueError: `machine` is itself a recording.
    """
    reader = machine.read
    if not isinstance(reader, LiveReader):
        raise ValueError(f"{machine.name} cannot be recorded: it is a recording")
    reader.together([f"ask {query}" for query in QUERIES])
    read_everything(machine, size=size, limit_s=limit_s, progress=progress)
    with contextlib.suppress(Exception):  # malformed readings are recorded as they are
        machine.know(nic_choice.choices)
    filtered = {key: filter_reading(key, reading) for key, reading in reader.seen().items()}
    kept = {key: reading for key, reading in filtered.items() if reading is not None}
    return Snapshot(
        dgkit=__version__,
        taken=datetime.date.today().isoformat(),
        source="recorded",
        readings=Redactor(word).redact(kept),
    )
