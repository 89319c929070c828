# SPDX-License-Identifier: Apache-2.0
"""Fill patterns: bytes that are easy to recognize, made and written to a region block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from .scheduler import StallTimer, wait_done
from .session_model import SessionModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Block = NDArray[np.uint8]
    from ...session import SessionRegion

BLOCK = 1 << 20  # bytes generated and copied in one step, a few milliseconds

# Kind, label, and name of the value after the colon ("" if the kind takes none).
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
    """A fill pattern, given as text.

    `zeros`, `ones`, `counter`, `random:SEED`, `byte:0xNN`, `checkerboard` or `text:WORDS`.
    `counter` numbers the items of the dtype from 0 and restarts at 0 before the first number that
    the dtype cannot hold exactly. `random:7` equals numpy's `default_rng(7).bytes()`.
    """

    def __init__(self, text: str) -> None:
        """Parse a pattern.

        Raises:
            ValueError: The kind is unknown, or its value is missing, unexpected or out of range.
        """
        kind, colon, value = str(text).partition(":")
        known = {name: parameter for name, _, parameter in KINDS}
        if kind not in known:
            raise ValueError(f"unknown pattern {text!r}; known: {', '.join(known)}")
        if colon and not known[kind]:
            raise ValueError(f"the pattern {kind!r} takes no value, but {value!r} was given")
        self.text = text
        self.kind = kind
        self.seed = _number("the seed", value or "0", (1 << 64) - 1) if kind == "random" else 0
        self.unit = _UNITS.get(kind, b"")
        if kind == "byte":
            self.unit = bytes([_number("the byte", value, 255)])
        if kind == "text":
            self.unit = value.encode()
            if not self.unit:
                raise ValueError("the text of the pattern is empty")

    def blocks(self, size: int, dtype: str = "u1") -> Iterator[Block]:
        """Generate the bytes in blocks of BLOCK; the last one may be shorter.

        Args:
            size: Number of bytes.
            dtype: Item type that `counter` counts in.

        Returns:
            Blocks that are valid only until the next one is generated.
        """
        if self.kind == "counter":
            return _counter_blocks(size, dtype)
        return (
            _random_blocks(size, self.seed)
            if self.kind == "random"
            else _repeat_blocks(size, self.unit)
        )

    def counter_bits(self, dtype: str) -> int:
        """Return the number of bits after which `counter` restarts at 0."""
        return _counter_bits(dtype)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Pattern {self.text}>"


def _number(name: str, text: str, maximum: int) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= maximum:
        raise ValueError(f"{name} is {text!r}; it must be an integer from 0 to {maximum}")
    return number


def _spans(size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, BLOCK):
        yield start, min(BLOCK, size - start)


def _repeat_blocks(size: int, unit: bytes) -> Iterator[Block]:
    import numpy as np

    longest = min(BLOCK, size)
    repeats = (longest + 2 * len(unit) - 1) // len(unit)
    tiled = np.tile(np.frombuffer(unit, "u1"), repeats)
    for start, count in _spans(size):
        yield tiled[start % len(unit) :][:count]


def _random_blocks(size: int, seed: int) -> Iterator[Block]:
    import numpy as np

    generator = np.random.default_rng(seed)
    for _, count in _spans(size):  # sizes are multiples of 4, so blocks join as one bytes(size)
        yield np.frombuffer(generator.bytes(count), "u1")


def _counter_bits(dtype: str) -> int:
    """Return the bits of the largest number up to which the dtype holds each integer exactly."""
    import numpy as np

    kind = np.dtype(dtype)
    return np.finfo(kind).nmant + 1 if kind.kind == "f" else np.iinfo(kind).max.bit_length()


def _counter_blocks(size: int, dtype: str) -> Iterator[Block]:
    import numpy as np

    kind, bits = np.dtype(dtype), _counter_bits(dtype)
    for start, count in _spans(size):
        first, items = start // kind.itemsize, -(-count // kind.itemsize)
        numbers = np.arange(first, first + items, dtype="u8")
        yield (numbers & np.uint64((1 << bits) - 1)).astype(kind).view("u1")[:count]


def fill_region(region: SessionRegion, pattern: Pattern, dtype: str = "u1") -> Iterator[int]:
    """Fill a region in steps.

    Memory of this process is written through its array (on a GPU by CuPy), memory of the agent by
    DMA.

    Args:
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


def _fill_array(region: SessionRegion, blocks: Iterator[Block]) -> Iterator[int]:
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


def _fill_by_dma(region: SessionRegion, blocks: Iterator[Block]) -> Iterator[int]:
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
