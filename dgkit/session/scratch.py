"""Scratch memory for measurements: transfers that write do not touch a region's bytes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import PeerError
from ..sizes import SCRATCH_PAGE
from ..types import Access, Op
from . import argument_checks

if TYPE_CHECKING:
    from .region import SessionRegion
    from .region_factory import RegionFactory

_MAX_NAME = 128  # characters of a region's name


class Scratch:
    """Memory of the same kind as a region, which belongs to a measurement and not to the session.

    It has the region's place, access and method (how the DPU reaches it). If dgkit allocated the
    region's memory, scratch memory is allocated in the same way; in place of a user's array,
    another array is used.

    Attributes:
        region: What to measure instead of the user's region.
        offset: Where to start in it; equal to the requested offset modulo 64 KiB.
    """

    def __init__(self, factory: RegionFactory, like: SessionRegion, offset: int, size: int) -> None:
        self._sides = factory.sides
        self.offset = offset % SCRATCH_PAGE
        name = f"scratch memory like {like.name}"[:_MAX_NAME]
        self.region = factory.like(like, self.offset + size, name)

    def free(self) -> None:
        """Free the memory on both sides. Idempotent."""
        region = self.region
        if not region.closed:
            timeout = self._sides.timeout
            try:
                with contextlib.suppress(PeerError):  # a lost or stuck agent frees its side itself
                    self._sides.dpu.forget(region, timeout)
            finally:  # also after Ctrl-C
                region.free(timeout)
                region.closed = True


def scratch_for(
    factory: RegionFactory,
    region: SessionRegion,
    offset: int,
    size: int,
    *,
    op: str,
    destructive: bool,
) -> Scratch | None:
    """Return scratch memory for a measurement that writes.

    Returns:
        None if the measurement may use the region itself: it reads, `destructive` is true, or the
        region refuses writes.
    """
    if type(destructive) is not bool:
        raise TypeError(f"destructive is {destructive!r}; it must be True or False")
    writes = argument_checks.op(op) == Op.WRITE and bool(region.access & Access.WRITE)
    if destructive or not writes:
        return None
    return Scratch(factory, region, offset, size)
