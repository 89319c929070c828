"""How bytes are got: as the DPU reads them, by DMA, and as the host sees them, in its own memory.

A read is started and then waited for with a limit, so that a DPU that is stopped costs a bounded
time once; until it has answered, no further read is asked of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError, DgkitError, PeerTimeout
from ...types import Access
from ..base.stall import Patience, settled

if TYPE_CHECKING:
    from ...session import SessionRegion

__all__ = ["SOURCES", "Fetch", "Reader", "host_bytes", "why_no_dpu", "why_no_host", "why_no_write"]

SOURCES = {"dpu": ("dpu",), "host": ("host",), "both": ("dpu", "host")}
PATIENCE_S = 1.5  # of one who looks; a stopped process is noticed and named within that
STEP_S = 0.008  # the frame thread waits no longer at a time


def why_no_host(region: SessionRegion) -> str:
    """Why the host's own view of a region cannot be had here; nothing if it can."""
    if region.on == "dpu":
        return f"{region.name!r} is memory of the DPU: the host has no bytes of its own for it."
    if region.local is None:
        return "The host is another process: this one reaches its memory by DMA only."
    return ""


def why_no_dpu(region: SessionRegion) -> str:
    """Why the DPU may not read a region; nothing if it may."""
    return "" if region.access & Access.READ else f"The DPU may write {region.name!r}, not read it."


def why_no_write(region: SessionRegion) -> str:
    """Why no byte of a region can be edited; nothing if it can."""
    return "" if region.access & Access.WRITE else f"{region.name!r} is read-only for the DPU."


def host_bytes(region: SessionRegion, at: int, size: int) -> bytes:
    """The region's own bytes, of a GPU's no more than these. ClosedError: it was freed."""
    producer = region.producer
    if region.local is None:
        raise ClosedError(f"region {region.name!r} was freed")
    array: Any = region.array
    if producer is not None:  # what the GPU still computes there comes first
        producer()
    part = array.reshape(-1).view("u1")[at : at + size]
    if not hasattr(part, "get"):
        return bytes(part.tobytes())
    with part.device:  # each thread has a current GPU of its own
        return bytes(part.get().tobytes())


class Fetch:
    """Bytes on their way from each of `sources`; the host's are taken when the DPU's are there."""

    def __init__(self, region: SessionRegion, sources: Sequence[str], at: int, size: int) -> None:
        self._region: SessionRegion | None = region
        self._name, self.sources, self.at, self.size = region.name, sources, at, size
        self._transfer: Any = None
        if "dpu" in sources:
            self._transfer = region.session.start_read(region, size, at)

    @property
    def settled(self) -> bool:
        """Nothing of it is on its way."""
        return self._transfer is None or bool(self._transfer.done())

    def take(self, seconds: float) -> list[bytes]:
        """The bytes, one item a source. PeerTimeout: not within `seconds`; what a read raises."""
        found = []
        for source in self.sources:
            if source == "dpu":
                self._transfer.wait(seconds)
                found.append(self._transfer.data)
            else:
                assert self._region is not None
                found.append(host_bytes(self._region, self.at, self.size))
        return found

    def steps(self) -> Generator[bool, None, list[bytes]]:
        """take() for the frame thread: gives way until the bytes are there."""
        patience = Patience()
        while True:
            if self._transfer is None or settled(self._transfer, STEP_S):
                return self.take(0)
            if patience.look(self._transfer.progress) > PATIENCE_S:
                raise PeerTimeout(
                    f"the DPU has not answered a read of {self._name!r} for {PATIENCE_S} s"
                )
            yield True

    def drop(self) -> None:
        """Ends it early, and lets the region go."""
        self._region = None
        if self._transfer is not None and not self._transfer.done():
            self._transfer.cancel()


class Reader:
    """Starts reads, and holds back while one that was given up is still on its way."""

    def __init__(self) -> None:
        self._late: Fetch | None = None

    def start(self, region: SessionRegion, sources: Sequence[str], at: int, size: int) -> Fetch:
        """PeerTimeout: an earlier read has still not been answered. ClosedError, PeerLost..."""
        late = self._late
        if late is not None and "dpu" in sources:
            if not late.settled:
                raise PeerTimeout("the DPU has still not answered the read before this one")
            self._late = None
        return Fetch(region, sources, at, size)

    def now(self, region: SessionRegion, sources: Sequence[str], at: int, size: int) -> list[bytes]:
        """Waits a bounded time; the bytes, one item a source."""
        fetch = self.start(region, sources, at, size)
        try:
            return fetch.take(PATIENCE_S)
        except DgkitError:
            self.give_up(fetch)
            raise

    def give_up(self, fetch: Fetch) -> None:
        """Nobody waits for it any more."""
        if not fetch.settled:
            self._late = fetch
        fetch.drop()
