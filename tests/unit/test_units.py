# SPDX-License-Identifier: Apache-2.0
"""Sizes, times and rates as text, and sizes parsed from text."""

import numpy as np
import pytest

import dgkit
from dgkit import units


def test_a_dtype_of_many_fields_is_counted_and_not_listed():
    fields = [(f"field_{number}", "<u8") for number in range(2000)]
    assert units.dtype_text(np.dtype(fields)) == "2,000 fields of 16,000 bytes"
    assert units.dtype_text(np.dtype(fields[:2])) == "[('field_0', '<u8'), ('field_1', '<u8')]"
    assert units.dtype_text("u1") == "u1"
    with dgkit.empty(3, dtype=np.dtype(fields)) as memory:
        assert len(repr(memory)) < 200
        assert len(memory._repr_html_()) < 2000


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.50 KiB"), (1 << 20, "1 MiB"),
     ((1 << 30) + 1, "1.00 GiB"), (1 << 44, "16 TiB"), (1 << 54, "16384 TiB")],
)  # fmt: skip
def test_sizes_are_short(size, text):
    assert units.size_text(size) == text


def test_times_are_microseconds_with_two_decimals():
    assert [units.us(ns) for ns in (0, 5, 123, 1_234_567)] == [
        "0.00",
        "0.01",
        "0.12",
        "1,234.57",
    ]


@pytest.mark.parametrize(
    ("text", "size"), [("0x100", 256), (" 0XfF ", 255), ("1MiB", 1 << 20), ("1.5K", 1536)]
)
def test_sizes_are_read_as_people_and_programs_write_them(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "0x", "0xg", "4X", "1.3", "0x8000000000000000"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match=r"not a (size|whole number)|is too large"):
        units.parse_size(text)


def test_an_offset_may_be_nothing_and_a_size_may_not():
    assert units.parse_size("0", least=0) == 0
    with pytest.raises(ValueError, match="one or more"):
        units.parse_size("0x0")
