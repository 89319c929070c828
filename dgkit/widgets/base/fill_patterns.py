"""Fill patterns: bytes that are easy to recognise, made a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Block = np.ndarray[Any, np.dtype[np.uint8]]

__all__ = ["BLOCK", "KINDS", "Pattern"]

BLOCK = 1 << 20  # bytes that are made, and copied, in one step: a few milliseconds

# The kind, what it is for people, and what stands behind its colon, if anything.
KINDS = (
    ("zeros", "zeros", ""),
    ("ones", "ones (0xff)", ""),
    ("counter", "counter (item i is i)", ""),
    ("random", "random", "seed"),
    ("byte", "byte value", "byte"),
    ("checkerboard", "checkerboard (0xaa, 0x55)", ""),
    ("text", "text repeated", "text"),
)
_UNITS = {"zeros": b"\0", "ones": b"\xff", "checkerboard": b"\xaa\x55"}


class Pattern:
    """`zeros`, `ones`, `counter`, `random:SEED`, `byte:0xNN`, `checkerboard` or `text:WORDS`.

    ValueError: it is none of these. `counter` counts items of the dtype, from 0, and begins again
    where the next number has no exact value in it. `random:7` is numpy's `default_rng(7).bytes()`.
    """

    def __init__(self, text: str) -> None:
        kind, colon, value = str(text).partition(":")
        known = {name: needs for name, _, needs in KINDS}
        if kind not in known:
            raise ValueError(f"{text!r} is no pattern; there are: {', '.join(known)}")
        if colon and not known[kind]:
            raise ValueError(f"the pattern {kind!r} takes no value, and here is {value!r}")
        self.text = text
        self.kind = kind
        self._seed = _number("the seed", value or "0", (1 << 64) - 1) if kind == "random" else 0
        self._unit = _UNITS.get(kind, b"")
        if kind == "byte":
            self._unit = bytes([_number("the byte", value, 255)])
        if kind == "text":
            self._unit = value.encode()
            if not self._unit:
                raise ValueError("the text to repeat is empty")

    def blocks(self, size: int, dtype: str = "u1") -> Iterator[Block]:
        """`size` bytes in blocks of BLOCK and a rest; a block is the caller's until the next."""
        if self.kind == "counter":
            return _counted(size, dtype)
        return _random(size, self._seed) if self.kind == "random" else _repeated(size, self._unit)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Pattern {self.text}>"


def _number(what: str, text: str, most: int) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise ValueError(f"{what} is {text!r}; it must be a whole number, 0 to {most}")
    return number


def _spans(size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, BLOCK):
        yield start, min(BLOCK, size - start)


def _repeated(size: int, unit: bytes) -> Iterator[Block]:
    import numpy as np

    longest = min(BLOCK, size)
    repeats = (longest + 2 * len(unit) - 1) // len(unit)
    tiled = np.tile(np.frombuffer(unit, "u1"), repeats)
    for start, count in _spans(size):
        yield tiled[start % len(unit) :][:count]


def _random(size: int, seed: int) -> Iterator[Block]:
    import numpy as np

    made = np.random.default_rng(seed)
    for _, count in _spans(size):  # each but the last a multiple of 4: all together as one
        yield np.frombuffer(made.bytes(count), "u1")


def _counted(size: int, dtype: str) -> Iterator[Block]:
    import numpy as np

    kind = np.dtype(dtype)
    bits = np.finfo(kind).nmant + 1 if kind.kind == "f" else np.iinfo(kind).max.bit_length()
    for start, count in _spans(size):
        first, items = start // kind.itemsize, -(-count // kind.itemsize)
        numbers = np.arange(first, first + items, dtype="u8")
        yield (numbers & np.uint64((1 << bits) - 1)).astype(kind).view("u1")[:count]
