# SPDX-License-Identifier: Apache-2.0
"""Fill patterns: which bytes each makes, in blocks that are as one, and what is refused."""

import numpy as np
import pytest

from dgkit.widgets.base.fill_patterns import BLOCK, Pattern

LONG = 2 * BLOCK + 24


def made(text, size, dtype="u1"):
    return b"".join(block.tobytes() for block in Pattern(text).blocks(size, dtype))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("zeros", b"\0"),
        ("ones", b"\xff"),
        ("byte:0xab", b"\xab"),
        ("byte:7", b"\x07"),
        ("checkerboard", b"\xaa\x55"),
        ("text:abc", b"abc"),
        ("text:a:b\N{EURO SIGN}", "a:b\N{EURO SIGN}".encode()),
        ("counter", bytes(range(256))),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000, LONG])
def test_a_unit_is_repeated_over_all_blocks(text, unit, size):
    assert made(text, size) == (unit * (size // len(unit) + 1))[:size]


def test_random_bytes_are_those_of_numpy_with_that_seed():
    assert made("random:7", LONG) == np.random.default_rng(7).bytes(LONG)
    assert made("random", 64) == np.random.default_rng(0).bytes(64)
    assert made("random:8", 64) != made("random:7", 64)


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
)
def test_a_counter_counts_items_of_the_dtype_as_long_as_they_are_exact(dtype):
    items = np.frombuffer(made("counter", LONG, dtype), dtype)
    exact = 1 << (np.finfo(dtype).nmant + 1 if dtype[0] == "f" else 8 * items.itemsize)
    exact //= 2 if dtype[0] == "i" else 1
    counted = np.arange(len(items), dtype="u8") % np.uint64(min(exact, 1 << 63))
    assert (items.astype("f8") == counted).all()


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "ones:1", "byte", "byte:", "byte:256", "byte:-1", "byte:x", "random:-1",
     "random:one", "text:", "text"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"pattern|byte|seed|text"):
        Pattern(text)
