# SPDX-License-Identifier: Apache-2.0
"""What a form reads: sizes and offsets, from Python and from text."""

import json

import numpy as np
import pytest
from support.jupyter.node import run_module

from dgkit.widgets.base.page_input import to_offset, to_size
from dgkit.widgets.latency.measurement import Setting

# Text of a size and its bytes; None: invalid, in the kernel and on the page.
SIZES = {
    "0": 0, "4096": 4096, " 4096 ": 4096, "007": 7, "64b": 64, "64 B": 64, "0x0": 0, "0x1000": 4096,
    " 0XfF ": 255, "4K": 4096, "4k": 4096, "4KB": 4096, "4KiB": 4096, "4 kib": 4096, "1M": 1 << 20,
    "1 MiB": 1 << 20, "2G": 2 << 30, "3T": 3 << 40, "1.0": 1, "1.5K": 1536, "0.5 GiB": 1 << 29,
    "0.125K": 128, "1.0009765625K": 1025, "4\tK": 4096, "0.30000000000000000001T": None,
    "4,096": None, "4_096": None, "0x1_000": None, "0x10K": None, "0x": None, "0xg": None,
    "": None, " ": None, "-1": None, "+1": None, "1e3": None, "1.": None, ".5K": None, "1.3": None,
    "0.1K": None, "64ib": None, "64Ki": None, "4X": None, "4 K K": None, "K": None, "NaN": None,
    "4\u212a": None, "\u0664": None, "Infinity": None, "8388608T": None,
    "0x7fffffffffffffff": (1 << 63) - 1, "0x8000000000000000": None,
    "9223372036854775807": (1 << 63) - 1, "9223372036854775808": None, "9" * 400: None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_a_size_is_read_by_the_kernel(text, size):
    if size is None:
        with pytest.raises(ValueError, match=r"not a size|not a whole number|is too large"):
            to_offset(text)
    else:
        assert to_offset(text) == size


def test_a_size_is_read_by_the_page_as_by_the_kernel():
    printed = run_module("base/units.js", "parseSize", "print(given.map(parseSize));", list(SIZES))
    read = {text: None if size is None else float(size) for text, size in SIZES.items()}
    assert dict(zip(SIZES, json.loads(printed, parse_int=float), strict=True)) == read


@pytest.mark.parametrize("value", [3.5, True, "x", b"1", np.float64(4)])
def test_what_is_no_number_of_bytes_is_refused(value):
    for read in (to_size, to_offset):
        with pytest.raises((TypeError, ValueError)):
            read(value)


def test_sizes_are_one_or_more_and_offsets_zero_or_more():
    for wrong in (0, -5, np.int64(-1)):
        with pytest.raises(ValueError, match="1 or more"):
            to_size(wrong)
    with pytest.raises(ValueError, match="0 or more"):
        to_offset(-5)
    assert [to_size(np.int64(4)), to_offset(0), to_size("4K"), to_offset("0")] == [4, 0, 4096, 0]


@pytest.mark.parametrize(
    "changes",
    [
        *({"size": value} for value in (-5, 0, 3.5, True, None)),
        *({"region": value} for value in (3.5, True, "x", b"1")),
        *({"count": value} for value in (0, 2.5, True)),
    ],
)
def test_a_setting_of_a_plot_that_is_no_number_is_about_its_field(changes):
    with pytest.raises((TypeError, ValueError)) as caught:
        Setting().updated(changes)
    assert caught.value.field in changes


def test_a_setting_of_a_plot_is_a_number_or_text():
    assert Setting().updated({"size": "4K", "region": "3", "count": "7"}) == Setting(
        3, 4096, count=7
    )
    assert Setting(3).updated({"region": None}).region == 0
