"""Parts of the hex view: searching by pieces, what has changed, what is copied."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgkit.widgets.hexview.change_tracker import BLOCK, Seen, around
from dgkit.widgets.hexview.clipboard import DTYPES, as_form
from dgkit.widgets.hexview.search import Differences, Found, Pattern, hunt, parse_pattern, spans


class Piece:
    """A read that is there at once."""

    def __init__(self, parts, at, size):
        self.at, self._parts, self.dropped = at, [part[at : at + size] for part in parts], False

    def steps(self):
        yield True
        return self._parts

    def drop(self):
        self.dropped = True


def searched(parts, start, probe, backward=False, chunk=7):
    steps = hunt(
        lambda at, size: Piece(parts, at, size),
        len(parts[0]),
        start,
        probe,
        backward=backward,
        chunk=chunk,
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


few = st.binary(min_size=1, max_size=60).map(lambda data: bytes(byte % 3 for byte in data))


@given(few, few.filter(lambda data: len(data) < 9), st.integers(0, 60), st.integers(1, 20))
def test_a_search_by_pieces_finds_what_bytes_find_finds(data, pattern, start, chunk):
    start = min(start, len(data))
    at = data.find(pattern, start)
    wrapped = at < 0
    expected = Found(data.find(pattern) if wrapped else at, wrapped)
    assert searched([data], start, Pattern(pattern), chunk=chunk) == expected


@given(few, few.filter(lambda data: len(data) < 9), st.integers(0, 60), st.integers(1, 20))
def test_a_search_backward_finds_what_bytes_rfind_finds(data, pattern, start, chunk):
    start = min(start, len(data))
    at = data.rfind(pattern, 0, start + len(pattern) - 1)  # a hit begins before `start`
    wrapped = at < 0
    expected = Found(data.rfind(pattern) if wrapped else at, wrapped)
    assert searched([data], start, Pattern(pattern), True, chunk=chunk) == expected


@given(few, st.data())
def test_the_next_difference_is_the_first_byte_of_a_run(one, data):
    other = data.draw(st.binary(min_size=len(one), max_size=len(one))).translate(
        bytes(byte % 3 for byte in range(256))
    )
    unlike = [a != b for a, b in zip(one, other, strict=True)]
    begins = [i for i, is_so in enumerate(unlike) if is_so and not (i and unlike[i - 1])]
    start = data.draw(st.integers(0, len(one)))
    ahead = [i for i in begins if i >= start] or begins
    back = [i for i in begins if i < start] or begins
    assert searched([one, other], start, Differences()).at == (ahead[0] if ahead else -1)
    assert searched([one, other], start, Differences(), True).at == (back[-1] if back else -1)
    count = Differences(count=True)
    assert searched([one, other], 0, count).at == -1
    assert (count.bytes, count.runs) == (sum(unlike), len(begins))


@given(st.integers(1, 100), st.integers(0, 100), st.booleans(), st.integers(1, 30))
def test_pieces_cover_each_byte_once(size, start, backward, chunk):
    start = min(start, size)
    seen = [at for low, high, _ in spans(size, start, backward, chunk) for at in range(low, high)]
    assert sorted(seen) == list(range(size))


def test_a_search_that_is_ended_drops_what_is_on_its_way():
    made = []

    def fetch(at, size):
        made.append(Piece([bytes(100)], at, size))
        return made[-1]

    steps = hunt(fetch, 100, 0, Pattern(b"x"), chunk=7)
    next(steps)
    steps.close()
    assert made
    assert all(piece.dropped for piece in made)


@pytest.mark.parametrize(
    ("text", "kind", "pattern"),
    [
        ("00 ff 1A", "hex", b"\x00\xff\x1a"),
        ("0x00,0xff", "hex", b"\x00\xff"),
        ("00ff1a", "hex", b"\x00\xff\x1a"),
        ("größe", "text", "größe".encode()),
        ("00", "text", b"00"),
    ],
)
def test_a_pattern_is_hex_or_text(text, kind, pattern):
    assert parse_pattern(text, kind) == pattern


@pytest.mark.parametrize(
    ("text", "kind"), [("", "hex"), ("", "text"), ("0", "hex"), ("xy", "hex"), ("a", "regex")]
)
def test_what_is_no_pattern_says_so(text, kind):
    with pytest.raises(ValueError, match=r"pattern|hex digits"):
        parse_pattern(text, kind)


def test_a_pattern_of_more_than_4096_bytes_is_refused():
    with pytest.raises(ValueError, match="1 to 4096"):
        parse_pattern("a" * 4097, "text")


def test_what_is_seen_for_the_first_time_has_not_changed():
    seen, data = Seen(), bytes(2 * BLOCK)
    assert seen.flags(("dpu",), 0, [data]) == b""
    changed = bytearray(data)
    changed[300] = 9
    flags = seen.flags(("dpu",), 0, [bytes(changed)])
    assert [at for at, flag in enumerate(flags) if flag] == [300]
    assert flags[300] == 1
    assert seen.flags(("dpu",), 0, [bytes(changed)]) == flags, "until it is marked as seen"
    seen.mark()
    assert seen.flags(("dpu",), 0, [bytes(changed)]) == b""


def test_each_view_of_the_bytes_has_its_own_changes_and_both_their_differences():
    seen = Seen()
    one, other = bytes(8), bytes([0, 5, 0, 0, 0, 0, 0, 0])
    assert seen.flags(("dpu", "host"), 0, [one, one]) == b""
    assert seen.flags(("dpu", "host"), 0, [one, other])[1] == 2 | 4
    assert seen.flags(("dpu",), 0, [other])[1] == 1


def test_reads_are_of_whole_blocks_within_the_region():
    assert around(0, 10, 1000) == (0, 256)
    assert around(255, 2, 1000) == (0, 512)
    assert around(990, 10, 1000) == (768, 1000)


@given(st.binary(min_size=1, max_size=64))
def test_what_is_copied_for_python_and_numpy_is_the_same_bytes(data):
    assert eval(as_form(data, "python")) == data
    array = eval(as_form(data, "numpy", "u8"), {"np": np})
    assert array.tobytes() == data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_a_numpy_expression_has_the_type_that_is_shown(dtype, endian):
    array = eval(as_form(bytes(range(16)), "numpy", dtype, endian), {"np": np})
    assert array.nbytes == 16
    assert array.itemsize == DTYPES[dtype][0]
    assert array.dtype.newbyteorder("=") == DTYPES[dtype][1]
    if array.itemsize > 1:
        assert int(array.view(array.dtype.str[0] + f"u{array.itemsize}")[0]) == int.from_bytes(
            bytes(range(array.itemsize)), endian
        )


def test_bytes_are_copied_as_hex_text_and_c():
    assert as_form(b"\x00\xffA", "hex") == "00 ff 41"
    assert as_form(b"A\xff", "text") == "A�"
    assert "const uint8_t data[2] = {\n  0x41, 0xff,\n};" in as_form(b"A\xff", "c")


def test_half_a_value_and_an_unknown_form_are_refused():
    with pytest.raises(ValueError, match="no whole number of u32"):
        as_form(bytes(3), "numpy", "u32")
    with pytest.raises(ValueError, match="not as 'rust'"):
        as_form(b"a", "rust")
