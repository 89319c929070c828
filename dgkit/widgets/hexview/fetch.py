# SPDX-License-Identifier: Apache-2.0
"""Reads of a region: as the DPU reads it, by DMA, and as the host sees it, in its own memory.

The wait for a read is bounded, and no further read is started until the DPU has answered it. So a
stopped DPU delays a view only once, by that limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError, DgkitError, PeerTimeout
from ...types import Access
from ...units import size_text
from ..base.scheduler import StallTimer, wait_done
from ..base.session_model import SessionModel

if TYPE_CHECKING:
    from ...session import SessionRegion, SessionTransfer

SOURCES = {"dpu": ("dpu",), "host": ("host",), "both": ("dpu", "host")}
TIMEOUT_S = 1.5  # within this time a stopped DPU is noticed and reported
DIGESTS = ("sha256", "md5")
MAX_DIGEST, _PIECE = 64 << 20, 1 << 20  # bytes: in all, and read at once
STEP_S = 0.008  # longest wait of the frame thread in one step


def why_no_host(region: SessionRegion) -> str:
    """Return why this process cannot read a region as the host sees it, or "" if it can."""
    if region.on == "dpu":
        return f"{region.name!r} is DPU memory: the host has no copy of it."
    if region.local is None:
        return "The host is another process: its memory can be read from here by DMA only."
    return ""


def why_no_dpu(region: SessionRegion) -> str:
    """Return why the DPU must not read a region, or "" if it may."""
    if region.access & Access.READ:
        return ""
    return f"The DPU may write {region.name!r}, but not read it."


def why_no_write(region: SessionRegion) -> str:
    """Return why a region cannot be edited, or "" if it can."""
    return "" if region.access & Access.WRITE else f"{region.name!r} is read-only for the DPU."


def host_bytes(region: SessionRegion, at: int, size: int) -> bytes:
    """Return bytes of a region from the host's memory; from a GPU, only these bytes are copied.

    Synchronize with the producing stream first.

    Raises:
        ClosedError: The region was freed.
    """
    producer = region.producer
    if region.local is None:
        raise ClosedError(f"region {region.name!r} was freed")
    array: Any = region.array
    if producer is not None:
        producer()
    part = array.reshape(-1).view("u1")[at : at + size]
    if not hasattr(part, "get"):
        return bytes(part.tobytes())
    with part.device:  # CUDA's current device is per thread
        return bytes(part.get().tobytes())


class Fetch:
    """One read from each of `sources`; the host's bytes are taken once the DPU's have arrived."""

    def __init__(self, region: SessionRegion, sources: Sequence[str], at: int, size: int) -> None:
        self._region: SessionRegion | None = region
        self._name, self.sources, self.at, self.size = region.name, sources, at, size
        self._transfer: SessionTransfer | None = None
        self._counted: SessionModel | None = None
        if "dpu" in sources:
            self._transfer = region.session.start_read(region, size, at)
            self._counted = SessionModel.of(region.session)

    @property
    def settled(self) -> bool:
        """True if no transfer is in flight."""
        return self._transfer is None or self._transfer.done()

    def result(self, seconds: float) -> list[bytes]:
        """Wait up to `seconds` and return the bytes, one item per source.

        Raises:
            PeerTimeout: The DPU did not answer in time.
            DgkitError: As raised by the read.
        """
        parts = []
        for source in self.sources:
            if source == "dpu":
                assert self._transfer is not None
                self._transfer.wait(seconds)
                parts.append(self._transfer.data)
                if self._counted is not None:
                    self._counted.count_read(self.size)
                    self._counted = None
            else:
                assert self._region is not None
                parts.append(host_bytes(self._region, self.at, self.size))
        return parts

    def steps(self) -> Generator[bool, None, list[bytes]]:
        """Yield on the frame thread until the bytes have arrived, then return result()."""
        stall = StallTimer()
        while True:
            if self._transfer is None or wait_done(self._transfer, STEP_S):
                return self.result(0)
            if stall.check(self._transfer.progress) > TIMEOUT_S:
                raise PeerTimeout(
                    f"the DPU has not answered a read of {self._name!r} for {TIMEOUT_S} s"
                )
            yield True

    def cancel(self) -> None:
        """Cancel the transfer and release the region."""
        self._region = None
        if self._transfer is not None and not self._transfer.done():
            self._transfer.cancel()


class Reader:
    """Starts reads; no DMA read is started while an abandoned one is in flight."""

    def __init__(self) -> None:
        self._abandoned: Fetch | None = None

    def start(self, region: SessionRegion, sources: Sequence[str], at: int, size: int) -> Fetch:
        """Start a read.

        Raises:
            PeerTimeout: The DPU has not answered an earlier read.
            DgkitError: As raised by Session.start_read: ClosedError, PeerLost, ...
        """
        abandoned = self._abandoned
        if abandoned is not None and "dpu" in sources:
            if not abandoned.settled:
                raise PeerTimeout("the DPU has still not answered an earlier read")
            self._abandoned = None
        return Fetch(region, sources, at, size)

    def read(
        self, region: SessionRegion, sources: Sequence[str], at: int, size: int
    ) -> list[bytes]:
        """Wait up to TIMEOUT_S and return the bytes, one item per source.

        Raises:
            DgkitError: As raised by start() and Fetch.result().
        """
        fetch = self.start(region, sources, at, size)
        try:
            return fetch.result(TIMEOUT_S)
        except DgkitError:
            self.abandon(fetch)
            raise

    def digest(self, region: SessionRegion, source: str, at: int, size: int, kind: str) -> str:
        """Read bytes and return their digest, one of DIGESTS, in hex.

        Raises:
            ValueError: There are more than 64 MiB of them.
            DgkitError: As raised by read().
        """
        if size > MAX_DIGEST:
            raise ValueError(
                f"a digest here is of at most {size_text(MAX_DIGEST)}, not {size:,} bytes; "
                f"in a cell: hashlib.{kind}(session.read(region, {size}, offset={at})).hexdigest()"
            )
        digest = hashlib.new(kind, usedforsecurity=False)
        for start in range(at, at + size, _PIECE):
            piece = min(_PIECE, at + size - start)
            digest.update(self.read(region, (source,), start, piece)[0])
        return digest.hexdigest()

    def abandon(self, fetch: Fetch) -> None:
        """Cancel a read; no further DMA read starts until the DPU has answered it."""
        if not fetch.settled:
            self._abandoned = fetch
        fetch.cancel()
