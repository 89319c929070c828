"""What a form reads: sizes and offsets, from Python and from text."""

import numpy as np
import pytest

from dgkit.widgets.base.forms import offset_of, size_of
from dgkit.widgets.latency.meter import Setting


@pytest.mark.parametrize("value", [3.5, True, "x", b"1", np.float64(4)])
def test_what_is_no_number_of_bytes_is_refused(value):
    for read in (size_of, offset_of):
        with pytest.raises((TypeError, ValueError)):
            read(value)


def test_sizes_are_one_or_more_and_offsets_zero_or_more():
    for wrong in (0, -5, np.int64(-1)):
        with pytest.raises(ValueError, match="1 or more"):
            size_of(wrong)
    with pytest.raises(ValueError, match="0 or more"):
        offset_of(-5)
    assert [size_of(np.int64(4)), offset_of(0), size_of("4K"), offset_of("0")] == [4, 0, 4096, 0]


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
        Setting().but(changes)
    assert caught.value.field in changes


def test_a_setting_of_a_plot_is_a_number_or_text():
    assert Setting().but({"size": "4K", "region": "3", "count": "7"}) == Setting(3, 4096, count=7)
    assert Setting(3).but({"region": None}).region == 0
