"""The file that demo moves, checked before anything is started."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import click

from ..memory.meminfo import available_bytes
from ..units import size_text
from .demo_target import CHUNK, Target

__all__ = ["Source"]

_MADE_UP = 16 << 20
_TEXT = b"dgkit demo: these bytes were read and written by DMA.\n"
_PERIOD = 1_000_003  # bytes; a prime, so that a chunk in a wrong place would be seen


class Source:
    """Bytes to move: a file's, or made up ones if there is none. `name`, `size`: which they are.

    `copies`: how often the host's memory will hold them, which must have room for them.
    """

    def __init__(self, path: Path | None, *, copies: int = 2) -> None:
        self._path = path
        self.name = "made up, the same at each run" if path is None else str(path)
        self.kind = "bytes made up" if path is None else "file read"
        self._bytes = b"" if path is None else _unsized(path)
        self.size = _MADE_UP if path is None else len(self._bytes) or path.stat().st_size
        free = available_bytes()
        if self.size * copies > free:
            raise click.UsageError(
                f"{self.name} has {size_text(self.size)}; demo holds it {copies} times and "
                f"{size_text(free)} of memory are free: the limit is {size_text(free // copies)}"
            )

    def read_into(self, target: Target, advance: Callable[[int, int], None]) -> None:
        """Fills `target`, which has `size` bytes. OSError if the file became shorter."""
        if self._path is None:
            noise = random.Random(1).randbytes(_PERIOD) * (self.size // _PERIOD + 1)
            self._put((_TEXT + noise)[: self.size], target)
            return
        if self._bytes:
            self._put(self._bytes, target)
            return
        done = 0
        with self._path.open("rb", buffering=0) as file:
            while done < self.size:
                room = target.room(done, min(CHUNK, self.size - done))
                count = file.readinto(room) or 0
                if not count:
                    raise OSError(f"{self.name} became shorter while it was read")
                target.filled(done, count)
                done += count
                advance(done, self.size)

    def _put(self, data: bytes, target: Target) -> None:
        view = memoryview(data)
        for at in range(0, self.size, CHUNK):
            target.put(at, view[at : at + CHUNK])


def _unsized(path: Path) -> bytes:
    """The bytes of a file that tells no size, as in /proc; of another one nothing.

    A usage error says why the file cannot be moved.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise click.UsageError(f"{path} is no regular file; give one, or none for a made up one")
    if found.st_size:
        return b""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        data = file.read(_MADE_UP + 1)
    if not data:
        raise click.UsageError(f"{path} is empty: there is no byte to move; give another file")
    if len(data) > _MADE_UP:
        raise click.UsageError(
            f"{path} tells no size and has more than {size_text(_MADE_UP)}; give another file"
        )
    return data
