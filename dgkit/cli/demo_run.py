"""The move of demo: file to host region, DMA to the DPU, hashed there, DMA to a second region."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..html_cards import provider_label
from .console import step, steps
from .demo_target import CHUNK, target

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..session import Session
    from .demo_source import Source
    from .demo_target import Target

__all__ = ["Moved", "Step", "move", "sides"]

_SHOWN = 64


@dataclass(slots=True)
class Step:
    """One step and its time by this process's clock, with all that it took.

    `read_ns` and `write_ns`: what its DMAs alone took, by the DPU's clock; 0 if not known.
    """

    text: str
    size: int
    elapsed_ns: int = 0
    read_ns: int = 0
    write_ns: int = 0

    @property
    def overlapped(self) -> bool:
        """Whether reads and writes ran at the same time, as their sum tells."""
        return self.read_ns + self.write_ns > self.elapsed_ns


@dataclass(slots=True)
class Moved:
    """What the move came to. The digests are SHA-256 as hex digits."""

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
        """Of the regions: `host`, `pinned` or `GPU`."""
        return "GPU" if self.place.startswith("cuda:") else self.place

    @property
    def verified(self) -> bool:
        """Whether the three digests are one and the same."""
        return bool(self.host) and self.host == self.dpu == self.copy

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "file": {"name": self.name, "size": self.size},
            "place": self.place,
            "steps": [asdict(step) for step in self.steps],
            "sha256": {"host": self.host, "dpu": self.dpu, "copy": self.copy},
            "verified": self.verified,
            "first_bytes": self.first.hex(),
        }


def sides(session: Session) -> dict[str, Any]:
    """Who takes part, in plain values: both processes, the provider, and what that is."""
    info = session.info
    provider = info["dpu"]["provider"]
    return {"provider": provider, "label": provider_label(provider), **info}


def move(session: Session, source: Source, on: str = "host") -> Moved:
    """Does all of it, with a bar for each step that is long enough to wait for.

    `on`: where the host has both regions, as Session.empty() takes it.
    """
    moved = Moved(source.name, source.size)
    size = source.size
    with (
        session.empty(size, on=on, name="source") as there,
        session.empty(size, on=on, name="copy") as back,
        steps() as progress,
    ):
        moved.place = there.place
        sent, came_back = target(there), target(back)  # loads NumPy: no part of a step
        with _timed(moved, progress, f"{source.kind} into a {moved.kind} region") as advance:
            source.read_into(sent, advance)
        with _timed(moved, progress, "host hashes its region") as advance:
            moved.host = _sha256(sent, advance)
        with _timed(moved, progress, "DPU reads it by DMA and hashes it"):
            moved.dpu = session.digest(there)
        with _timed(moved, progress, "DPU reads it again, writes it to a second region"):
            report = session.copy(there, back)
        moved.steps[-1].read_ns, moved.steps[-1].write_ns = report.read_ns, report.write_ns
        with _timed(moved, progress, "host hashes the second region") as advance:
            moved.copy = _sha256(came_back, advance)
        moved.first = bytes(came_back.piece(0, min(size, _SHOWN)))
        del sent, came_back  # the regions end with nothing over them
    return moved


@contextmanager
def _timed(moved: Moved, progress: Progress, text: str) -> Iterator[Callable[[int, int], None]]:
    started = time.monotonic_ns()
    with step(progress, text) as advance:
        yield advance
    moved.steps.append(Step(text, moved.size, time.monotonic_ns() - started))


def _sha256(data: Target, advance: Callable[[int, int], None]) -> str:
    hasher = hashlib.sha256()
    for at in range(0, data.size, CHUNK):
        count = min(CHUNK, data.size - at)
        hasher.update(data.piece(at, count))
        advance(at + count, data.size)
    return hasher.hexdigest()
