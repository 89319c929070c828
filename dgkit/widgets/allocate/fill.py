"""Filling a region with a pattern, a block at a time: here, on a GPU, or at the agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ..base import region_usage
from ..base.fill_patterns import Pattern
from ..base.stall import StallTimer, wait_done

if TYPE_CHECKING:
    from ...session import SessionRegion

__all__ = ["filling"]


def filling(region: SessionRegion, pattern: Pattern, dtype: str = "u1") -> Iterator[int]:
    """Steps that fill all of a region; each yields how many bytes are filled.

    In this process the array is written, a GPU's by CuPy; what lies at the agent is written by DMA.
    ClosedError: the region was freed meanwhile.
    """
    with region_usage.using(region, "a fill"):
        blocks = pattern.blocks(region.size, dtype)
        yield from _in_place(region, blocks) if region.local else _by_writes(region, blocks)


def _in_place(region: SessionRegion, blocks: Iterator[Any]) -> Iterator[int]:
    array: Any = region.array
    done = 0
    flat = array.reshape(-1).view("u1")
    for block in blocks:
        if region.closed:
            raise ClosedError(f"region {region.name!r} was freed after {done} bytes were filled")
        part = flat[done : done + len(block)]
        if region.place.startswith("cuda"):
            with array.device:  # which is current is the thread's, and other work runs in it, too
                part.set(block)
        else:
            part[:] = block
        done += len(block)
        yield done
    if region.producer is not None:
        region.producer()


def _by_writes(region: SessionRegion, blocks: Iterator[Any]) -> Iterator[int]:
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
