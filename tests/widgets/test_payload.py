# SPDX-License-Identifier: Apache-2.0
"""Payloads of a write: each kind, and its validation before any data moves."""

import numpy as np
import pytest

from dgkit.widgets.base import namespace
from dgkit.widgets.transfer.request import (
    MAX_PAYLOAD,
    from_form,
    from_python,
    parse_hex,
)


def data_of(payload):
    steps = payload.build()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def form(kind, value, size=None):
    return data_of(from_form(kind, value, size))


def field_of(kind, value, size=None):
    with pytest.raises((ValueError, TypeError)) as caught:
        from_form(kind, value, size)
    return caught.value.field, str(caught.value)


def test_text_is_utf_8():
    assert form("text", "h\N{LATIN SMALL LETTER E WITH ACUTE}!") == b"h\xc3\xa9!"


@pytest.mark.parametrize(
    "text", ["00 ff 1a", "0x00ff1a", "00:FF:1a", "0x00, 0xff,\n0x1a", "00ff_1a"]
)
def test_hex_digits_are_read_as_people_write_them(text):
    assert form("hex", text) == b"\x00\xff\x1a"


@pytest.mark.parametrize(("text", "words"), [("0", "needs two"), ("zz", "'z' is not a hex digit")])
def test_what_is_no_hex_says_where(text, words):
    with pytest.raises(ValueError, match=words):
        parse_hex(text)
    assert field_of("hex", text)[0] == "payload"


def test_a_pattern_has_the_size_of_the_form():
    assert form("pattern", "counter", "4") == b"\0\1\2\3"
    assert form("pattern", "byte:9", 3) == b"\t\t\t"


@pytest.mark.parametrize("size", [None, "", "0", "-1", "many", MAX_PAYLOAD + 1])
def test_a_pattern_without_a_size_is_about_the_size(size):
    assert field_of("pattern", "counter", size)[0] == "size"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", ""),
        ("hex", " "),
        ("pattern", "none"),
        ("expression", ""),
        ("?", ""),
    ],
)
def test_an_empty_or_unknown_payload_is_about_the_payload(kind, value):
    assert field_of(kind, value, 4)[0] == "payload"


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("np.arange(3, dtype='<u2')", b"\0\0\1\0\2\0"),
        ("b'ab' * 2", b"abab"),
        ("memoryview(b'xy')[1:]", b"y"),
        ("[1, 2]", np.array([1, 2]).tobytes()),
        ("np.arange(4, dtype='u1').reshape(2, 2).T", b"\0\2\1\3"),
    ],
)
def test_an_expression_of_the_notebook_gives_its_bytes(notebook, expression, result):
    assert form("expression", expression) == result


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("missing + 1", "NameError: name 'missing' is not defined"),
        ("1 +", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("'text'", "select the payload 'text'"),
        ("object()", "no bytes"),
        ("np.zeros(0)", "empty"),
    ],
)
def test_an_expression_that_fails_is_shown_in_its_own_words(notebook, expression, words):
    field, text = field_of("expression", expression)
    assert field == "payload"
    assert words in text


def test_the_result_of_an_expression_is_a_copy(notebook):
    notebook["mine"] = np.zeros(4, "u1")
    payload = from_form("expression", "mine", None)
    notebook["mine"][:] = 1
    assert data_of(payload) == bytes(4)


def test_outside_a_notebook_there_are_no_variables():
    assert "not an IPython kernel" in field_of("expression", "1")[1]
    assert namespace.candidates() == []


def test_variables_that_are_memory_are_offered_and_nothing_else(notebook):
    view = memoryview(b"abc")
    notebook.update(grid=np.ones((2, 2)), raw=bytearray(5), seen=view, _hidden=bytearray(1))
    notebook.update(text="abc", number=4, rows=np.ones((4, 4))[:, 1], objects=np.array([{}]))
    found = {each["name"]: each for each in namespace.candidates()}
    assert set(found) == {"grid", "raw", "seen"}
    assert (found["grid"]["text"], found["grid"]["readonly"]) == ("ndarray, 32 B", False)
    assert found["seen"]["readonly"]


class Huge:
    """More bytes than there are; who touches one fails."""

    nbytes = 3 << 30

    def __array__(self, *_args, **_kwargs):
        raise AssertionError("it was copied")


def test_an_expression_of_too_many_bytes_is_refused_before_it_is_copied(notebook):
    notebook["huge"] = Huge()
    notebook["wide"] = np.broadcast_to(np.uint8(1), (3 << 30,))  # one byte of memory
    for name in ("huge", "wide"):
        field, text = field_of("expression", name)
        assert (field, text) == ("payload", "the result has 3 GiB; the limit is 1 GiB")


def test_data_of_too_many_bytes_is_refused_before_it_is_copied(monkeypatch):
    monkeypatch.setattr("dgkit.widgets.transfer.request.MAX_PAYLOAD", 64)
    with pytest.raises(ValueError, match="the limit is 64 B"):
        from_python(bytearray(65), None, None)


def test_python_gives_data_or_a_pattern():
    assert data_of(from_python(b"ab", None, None)) == b"ab"
    assert data_of(from_python(np.arange(2, dtype="u1"), None, None)) == b"\0\1"
    assert data_of(from_python(None, "ones", 2)) == b"\xff\xff"
    for wrong in ((None, None, 4), (b"a", "ones", 4), (b"a", None, 1), ("text", None, None)):
        with pytest.raises(TypeError):
            from_python(*wrong)
