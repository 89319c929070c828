"""Filling a region with a pattern block by block: in this process, on a GPU, or at the agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ..base.fill_patterns import Pattern
from ..base.scheduler import StallTimer, wait_done
from ..base.session_model import SessionModel

if TYPE_CHECKING:
    from ...session import SessionRegion


def fill_region(region: SessionRegion, pattern: Pattern, dtype: str = "u1") -> Iterator[int]:
    """Fill a region in steps.

    Memory of this process is written through its array (on a GPU by CuPy), memory of the agent by
    DMA.

    Args:
        region: The region to fill.
        pattern: The bytes.
        dtype: Item type that a counter counts in.

    Yields:
        The number of bytes filled so far.

    Raises:
        ClosedError: The region was freed meanwhile.
        PeerTimeout: The DPU makes no progress.
    """
    with SessionModel.of(region.session).using(region, "a fill"):
        blocks = pattern.blocks(region.size, dtype)
        yield from _fill_array(region, blocks) if region.local else _fill_by_dma(region, blocks)


def _fill_array(region: SessionRegion, blocks: Iterator[Any]) -> Iterator[int]:
    array: Any = region.array
    done = 0
    flat = array.reshape(-1).view("u1")
    for block in blocks:
        if region.closed:
            raise ClosedError(f"region {region.name!r} was freed after {done:,} bytes were filled")
        part = flat[done : done + len(block)]
        if region.place.startswith("cuda"):
            with array.device:  # the current device is per thread; other tasks share it
                part.set(block)
        else:
            part[:] = block
        done += len(block)
        yield done
    if region.producer is not None:
        region.producer()


def _fill_by_dma(region: SessionRegion, blocks: Iterator[Any]) -> Iterator[int]:
    done = 0
    for block in blocks:
        transfer = region.session.start_write(region, block, offset=done)
        stall = StallTimer()
        try:
            while not wait_done(transfer):
                stall.check(transfer.progress)
                yield done + int(transfer.progress * transfer.size)
        except GeneratorExit:
            transfer.cancel()
            raise
        done += len(block)
        yield done
