# SPDX-License-Identifier: Apache-2.0
"""Shared code of the tests of dgkit.doca: a copy that is ready to start, over softdoca."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dgkit import doca

doca.use("softdoca")

# First lines of the programs that tests start; SOFTDOCA_SIDE selects their side.
START = """
import gc, os, sys, warnings
import dgkit
from dgkit import doca
doca.use("softdoca")
"""


class Copy:
    """All objects of one copy of `size` bytes; `source` and `target` are its bytearrays."""

    def __init__(self, size: int = 4096, *, tasks: int = 8, bufs: int = 16) -> None:
        self.source = bytearray((bytes(range(251)) * (size // 251 + 1))[:size])
        self.target = bytearray(size)
        self.device = doca.Device()
        self.source_map = doca.Mmap(self.source, self.device)
        self.target_map = doca.Mmap(self.target, self.device)
        self.inventory = doca.BufInventory(bufs)
        self.src = self.inventory.buf_by_data(self.source_map)
        self.dst = self.inventory.buf_by_addr(self.target_map)
        self.pe = doca.ProgressEngine()
        self.dma = doca.Dma(self.device, tasks=tasks)
        self.pe.connect(self.dma)
        self.dma.start()

    @property
    def roots(self) -> list[Any]:
        return [self.pe, self.device, self.inventory]

    def again(self) -> None:
        """Reset the target to its state before any copy."""
        self.dst.reset_data()
        self.target[:] = bytes(len(self.target))


@contextmanager
def copying(size: int = 4096, **options: int) -> Iterator[Copy]:
    """Yield a Copy, which is closed at the end of the block even after an exception."""
    made = Copy(size, **options)
    try:
        yield made
    finally:
        for root in made.roots:
            root.close()
