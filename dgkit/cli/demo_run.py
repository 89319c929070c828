"""Steps of demo: read the file into a region, have the DPU hash it and copy it to a second one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..html_cards import provider_label
from .console import progress_bar, progress_bars
from .demo_target import CHUNK, target_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..session import Session
    from .demo_source import Source
    from .demo_target import Target

_FIRST_BYTES = 64


@dataclass(slots=True)
class Step:
    """One step and its total time by this process's clock.

    `read_ns` and `write_ns` are the times of its DMAs by the DPU's clock, or 0 if unknown.
    """

    text: str
    size: int
    elapsed_ns: int = 0
    read_ns: int = 0
    write_ns: int = 0

    @property
    def overlapped(self) -> bool:
        """True if reads and writes overlapped, so that their sum exceeds the total."""
        return self.read_ns + self.write_ns > self.elapsed_ns


@dataclass(slots=True)
class Moved:
    """Result of all steps. `host`, `dpu` and `copy` are SHA-256 digests in hex."""

    name: str
    size: int
    steps: list[Step] = field(default_factory=list)
    host: str = ""
    dpu: str = ""
    copy: str = ""
    first: bytes = b""
    place: str = "host"

    @property
    def kind(self) -> str:
        """Kind of memory of the regions: `host`, `pinned` or `GPU`."""
        return "GPU" if self.place.startswith("cuda:") else self.place

    @property
    def verified(self) -> bool:
        """True if the three digests are equal."""
        return bool(self.host) and self.host == self.dpu == self.copy

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "file": {"name": self.name, "size": self.size},
            "place": self.place,
            "steps": [asdict(step) for step in self.steps],
            "sha256": {"host": self.host, "dpu": self.dpu, "copy": self.copy},
            "verified": self.verified,
            "first_bytes": self.first.hex(),
        }


def sides(session: Session) -> dict[str, Any]:
    """Return both processes, the provider and its label as plain values."""
    info = session.info
    provider = info["dpu"]["provider"]
    return {"provider": provider, "label": provider_label(provider), **info}


def move(session: Session, source: Source, on: str = "host") -> Moved:
    """Run all steps with progress bars.

    Args:
        session: Session with the DPU.
        source: The file.
        on: Place of both regions, as Session.empty() takes it.
    """
    moved = Moved(source.name, source.size)
    size = source.size
    with (
        session.empty(size, on=on, name="source") as region,
        session.empty(size, on=on, name="copy") as copy,
        progress_bars() as progress,
    ):
        moved.place = region.place
        sent, returned = target_of(region), target_of(copy)  # imports NumPy before the first step
        with _timed(moved, progress, f"{source.kind} into a {moved.kind} region") as advance:
            source.read_into(sent, advance)
        with _timed(moved, progress, "host hashes its region") as advance:
            moved.host = _sha256(sent, advance)
        with _timed(moved, progress, "DPU reads it by DMA and hashes it"):
            moved.dpu = session.digest(region)
        with _timed(moved, progress, "DPU reads it again, writes it to a second region"):
            report = session.copy(region, copy)
        moved.steps[-1].read_ns, moved.steps[-1].write_ns = report.read_ns, report.write_ns
        with _timed(moved, progress, "host hashes the second region") as advance:
            moved.copy = _sha256(returned, advance)
        moved.first = bytes(returned.piece(0, min(size, _FIRST_BYTES)))
        del sent, returned  # release the views before the regions close
    return moved


@contextmanager
def _timed(moved: Moved, progress: Progress, text: str) -> Iterator[Callable[[int, int], None]]:
    started = time.monotonic_ns()
    with progress_bar(progress, text) as advance:
        yield advance
    moved.steps.append(Step(text, moved.size, time.monotonic_ns() - started))


def _sha256(data: Target, advance: Callable[[int, int], None]) -> str:
    hasher = hashlib.sha256()
    for at in range(0, data.size, CHUNK):
        count = min(CHUNK, data.size - at)
        hasher.update(data.piece(at, count))
        advance(at + count, data.size)
    return hasher.hexdigest()
