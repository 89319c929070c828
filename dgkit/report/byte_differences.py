# SPDX-License-Identifier: Apache-2.0
"""differences(): where two regions, arrays or files differ, as a table."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..html_cards import Html, card, table
from ..units import plural, size_text

MAX_RUNS = 1000  # listed; all are counted
_ROWS, _SHOWN = 100, 16  # runs shown, and bytes of each
_PIECE = 1 << 20  # bytes compared at once
_COLOURS = ("#b3261e", "#146c2e")


class Run(NamedTuple):
    """Neighbouring bytes that all differ; the first 16 of them in both versions."""

    offset: int
    size: int
    first: bytes
    second: bytes


@dataclass(frozen=True)
class Differences:
    """The places where the bytes of two things differ; true if there are any.

    Attributes:
        names: What was compared.
        sizes: The size of each in bytes; beyond the shorter one there is nothing to compare.
        bytes: The number of bytes that differ.
        count: The number of runs of such bytes.
        runs: The first 1,000 runs.
    """

    names: tuple[str, str]
    sizes: tuple[int, int]
    bytes: int
    count: int
    runs: Sequence[Run] = field(repr=False)

    def __bool__(self) -> bool:
        """Return whether a byte or the size differs."""
        return self.bytes > 0 or self.sizes[0] != self.sizes[1]

    def _summary(self) -> str:
        found = "no byte differs"
        if self.bytes:
            found = f"{plural(self.bytes, 'byte')} in {plural(self.count, 'place')} differ"
        more = self.sizes[0] - self.sizes[1]
        if more:
            owner = self.names[more < 0]
            found += f"; {owner} is {plural(abs(more), 'byte')} longer"
        return found

    def __str__(self) -> str:
        """Return one line per run."""
        lines = [f"{self.names[0]} and {self.names[1]}: {self._summary()}"]
        for at, size, *versions in self.runs[:_ROWS]:
            lines.append(f"{at:#010x}  {'  |  '.join(_hex(data, size) for data in versions)}")
        return "\n".join([*lines, *self._rest()])

    def _rest(self) -> list[str]:
        hidden = self.count - min(self.count, _ROWS)
        return [f"... and {plural(hidden, 'place')} more"] if hidden else []

    def _repr_html_(self) -> str:
        rows = [
            (f"{at:#x}", f"{size:,}", _coloured(first, size, 0), _coloured(second, size, 1))
            for at, size, first, second in self.runs[:_ROWS]
        ]
        header = ("offset", "bytes", *self.names)
        body = table(" ".join(self._rest()), header, rows) if rows else Html("")
        sizes = zip(self.names, self.sizes, strict=True)
        about = [(name, size_text(size)) for name, size in sizes]
        return card("Differences", [*about, ("result", self._summary())], body=body)


def differences(first: Any, second: Any) -> Differences:
    """Compare the bytes of two things.

    Args:
        first: A region of a session, whose bytes are read by DMA; a path; or an array or tensor,
            on the host or a GPU, or another object with the buffer protocol.
        second: The same.

    Returns:
        A table of the places that differ, which a notebook shows, `print` prints, and `runs` holds.

    Raises:
        TypeError: It has no bytes.
        OSError: The file cannot be read.
        DgkitError: The DPU cannot read the region.
    """
    one, other = _source(first), _source(second)
    names = (one.name, other.name)
    if names[0] == names[1]:
        names = (f"{one.name} (first)", f"{other.name} (second)")
    total = count = 0
    runs: list[Run] = []
    goes_on = False  # the last byte compared differs
    for at in range(0, min(one.size, other.size), _PIECE):
        size = min(_PIECE, one.size - at, other.size - at)
        pieces = one.read(at, size), other.read(at, size)
        if pieces[0] == pieces[1]:
            goes_on = False
            continue
        unequal = np.frombuffer(pieces[0], "u1") != np.frombuffer(pieces[1], "u1")
        starts, stops = (
            np.flatnonzero(np.diff(unequal, prepend=False, append=False)).reshape(-1, 2).T
        )
        total += int(unequal.sum())
        merged = goes_on and bool(unequal[0])
        count += len(starts) - merged
        for i in range(min(len(starts), MAX_RUNS - len(runs) + merged)):
            start, stop = int(starts[i]), int(stops[i])
            run = Run(at + start, stop - start, *(piece[start:stop][:_SHOWN] for piece in pieces))
            if i == 0 and merged and runs:
                run = _joined(runs.pop(), run)
            runs.append(run)
        goes_on = bool(unequal[-1])
    return Differences(names, (one.size, other.size), total, count, runs)


def _joined(run: Run, rest: Run) -> Run:
    first, second = (run.first + rest.first)[:_SHOWN], (run.second + rest.second)[:_SHOWN]
    return Run(run.offset, run.size + rest.size, first, second)


class _Source(NamedTuple):
    name: str
    size: int
    read: Callable[[int, int], bytes]


def _source(thing: Any) -> _Source:
    """Return a region, a file's path, a GPU array, a buffer or whatever NumPy converts as bytes."""
    if hasattr(thing, "session") and hasattr(thing, "local"):
        session = thing.session
        return _Source(
            thing.name, thing.size, lambda at, size: session.read(thing, size, offset=at)
        )
    if isinstance(thing, (str, os.PathLike)):
        with Path(thing).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        return _Source(Path(thing).name, size, lambda at, size: data[at : at + size])
    name = f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}".removeprefix(
        "builtins."
    )
    if hasattr(thing, "__cuda_array_interface__"):
        thing = thing.get() if hasattr(thing, "get") else thing.cpu()
    try:
        view = memoryview(thing)
    except TypeError:
        array: Any = np.asarray(thing)  # a tensor
        if array.dtype == object:
            text = f"{name} has no bytes: pass a region, a path, an array or bytes"
            raise TypeError(text) from None
        view = memoryview(array)
    view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    return _Source(name, view.nbytes, lambda at, size: bytes(view[at : at + size]))


def _hex(data: bytes, size: int) -> str:
    return data.hex(" ") + (" ..." if size > len(data) else "")


def _coloured(data: bytes, size: int, side: int) -> Html:
    style = f"font-family:monospace;color:#ffffff;background-color:{_COLOURS[side]};padding:0px 4px"
    return Html(f'<span style="{style}">{_hex(data, size)}</span>')
