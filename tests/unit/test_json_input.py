# SPDX-License-Identifier: Apache-2.0
"""JSON that somebody else wrote."""

import json

import pytest

from dgkit.json_input import check_depth, read_json


@pytest.mark.parametrize("depth", [65, 900, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_a_value_error_however_deep(begin, end, depth):
    with pytest.raises(ValueError, match="more than 64 levels deep"):
        read_json(begin * depth + "0" + end * depth)


def test_64_levels_are_read_and_can_be_shown():
    value = read_json("[" * 64 + "0" + "]" * 64)
    assert json.dumps(value) == repr(value) == "[" * 64 + "0" + "]" * 64
    check_depth({"a": value[0]})


@pytest.mark.parametrize("text", ["", "{", b"\xff", "9" * 5000, "[1,]"])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - of json, int() or a codec
        read_json(text)
