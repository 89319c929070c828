# SPDX-License-Identifier: Apache-2.0
"""Parts of the hex view: search by chunks, change tracking, formats of the clipboard."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgkit.widgets.hexview import matchers
from dgkit.widgets.hexview.matchers import DifferenceMatcher, parse_wanted
from dgkit.widgets.hexview.search import Match, chunks, run_search
from dgkit.widgets.hexview.selection import DTYPES, decode, format_bytes
from dgkit.widgets.hexview.view_pages import BLOCK, ChangeTracker, block_range


class Piece:
    """A read whose bytes are available at once."""

    def __init__(self, parts, at, size):
        self.at, self._parts, self.cancelled = at, [part[at : at + size] for part in parts], False

    def steps(self):
        yield True
        return self._parts

    def cancel(self):
        self.cancelled = True


def searched(parts, start, matcher, backward=False, chunk=7):
    steps = run_search(
        lambda at, size: Piece(parts, at, size),
        len(parts[0]),
        start,
        matcher,
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
def test_a_search_by_chunks_finds_what_bytes_find_finds(data, pattern, start, chunk):
    start = min(start, len(data))
    at = data.find(pattern, start)
    wrapped = at < 0
    expected = Match(data.find(pattern) if wrapped else at, wrapped)
    assert searched([data], start, parse_wanted(pattern.hex(), "hex"), chunk=chunk) == expected


@given(few, st.integers(0, 60), st.integers(1, 20), st.booleans())
def test_a_search_by_expression_finds_what_re_finds(data, start, chunk, backward):
    matcher = parse_wanted(r"\x01+[\x00-\x01]?\x02", "regex")
    every = re.compile(rb"\x01+[\x00-\x01]?\x02")
    found = [at for at in range(len(data)) if every.match(data, at)]
    start = min(start, len(data))
    ahead = [at for at in found if (at < start if backward else at >= start)] or found
    match = searched([data], start, matcher, backward, chunk=chunk)
    assert match.at == ((ahead[-1] if backward else ahead[0]) if found else -1)
    if found:
        assert matcher.length == len(every.match(data, match.at)[0])


@pytest.mark.parametrize("text", [r"(?<=x)ab", r"\Bb", "[]a]*b", ".*?ab", r"a\$?b"])
def test_an_expression_sees_what_is_before_the_cursor_and_the_chunk(text):
    data = b"xxab" * 30
    every = [match.start() for match in re.compile(text.encode()).finditer(data)]
    for start in every:
        assert searched([data], start, parse_wanted(text, "regex"), chunk=4).at == start


def test_an_expression_matches_no_empty_place():
    assert searched([b"xab" * 9], 2, parse_wanted("(?=ab)", "regex")).at == -1


def test_an_expression_that_takes_long_ends(monkeypatch):
    monkeypatch.setattr(matchers, "_MOST_S", -1)
    with pytest.raises(ValueError, match="takes too long"):
        searched([b"a" * 600], 0, parse_wanted("a+b", "regex"))


def test_an_expression_matches_at_most_256_bytes():
    matcher = parse_wanted("a.*b", "regex")
    data = b"a" + bytes(300) + b"a" + bytes(254) + b"b" + bytes(400)
    assert searched([data], 0, matcher, chunk=1 << 10).at == 301
    assert matcher.length == 256


@pytest.mark.parametrize(
    "text",
    [
        *["(", "a*", "(a*)+b", "(a|aa)+b", "a*b*c*d*", r"[)]*(a)\)+{2}e+f+g+"],
        *["a?" * 24 + "a" * 24, "(a|aa)" * 22, "(?x)(a+) +b", r"[a\][](a+)+x]", ".*.*.*Q"],
        *["a$", r"a\Z"],  # there is no end where a chunk ends
    ],
)
def test_expressions_that_match_nothing_or_may_never_end_are_refused(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_wanted(text, "regex")


@given(few, few.filter(lambda data: len(data) < 9), st.integers(0, 60), st.integers(1, 20))
def test_a_search_backward_finds_what_bytes_rfind_finds(data, pattern, start, chunk):
    start = min(start, len(data))
    at = data.rfind(pattern, 0, start + len(pattern) - 1)  # a hit begins before `start`
    wrapped = at < 0
    expected = Match(data.rfind(pattern) if wrapped else at, wrapped)
    assert (
        searched([data], start, parse_wanted(pattern.hex(), "hex"), True, chunk=chunk) == expected
    )


@given(few, st.data())
def test_the_next_difference_is_the_first_byte_of_a_run(first, data):
    second = data.draw(st.binary(min_size=len(first), max_size=len(first))).translate(
        bytes(byte % 3 for byte in range(256))
    )
    unequal = [a != b for a, b in zip(first, second, strict=True)]
    begins = [i for i, is_so in enumerate(unequal) if is_so and not (i and unequal[i - 1])]
    start = data.draw(st.integers(0, len(first)))
    ahead = [i for i in begins if i >= start] or begins
    back = [i for i in begins if i < start] or begins
    assert searched([first, second], start, DifferenceMatcher()).at == (ahead[0] if ahead else -1)
    assert searched([first, second], start, DifferenceMatcher(), True).at == (
        back[-1] if back else -1
    )
    count = DifferenceMatcher(count=True)
    assert searched([first, second], 0, count).at == -1
    assert (count.bytes, count.runs) == (sum(unequal), len(begins))


@given(st.integers(1, 100), st.integers(0, 100), st.booleans(), st.integers(1, 30))
def test_chunks_cover_each_byte_once(size, start, backward, chunk):
    start = min(start, size)
    seen = [at for low, high, _ in chunks(size, start, backward, chunk) for at in range(low, high)]
    assert sorted(seen) == list(range(size))


def test_a_cancelled_search_cancels_its_reads_in_flight():
    made = []

    def fetch(at, size):
        made.append(Piece([bytes(100)], at, size))
        return made[-1]

    steps = run_search(fetch, 100, 0, parse_wanted("x", "text"), chunk=7)
    next(steps)
    steps.close()
    assert made
    assert all(piece.cancelled for piece in made)


@given(few, few, st.integers(0, 60), st.integers(1, 20), st.booleans())
def test_a_question_mark_is_any_digit(data, places, start, chunk, backward):
    wanted = data[2:7] or data
    digits = "".join(
        ("??", "?" + f"{byte:02x}"[1], f"{byte:02x}"[0] + "?")[places[i % len(places)]]
        for i, byte in enumerate(wanted)
    )
    regex = re.compile(b"(?=" + parse_bytes(digits) + b")", re.DOTALL)
    found = [match.start() for match in regex.finditer(data)]
    start = min(start, len(data))
    ahead = [at for at in found if at < start] if backward else [at for at in found if at >= start]
    expected = (ahead or found)[-1 if backward else 0]
    matcher = parse_wanted(digits, "hex")
    assert searched([data], start, matcher, backward, chunk=chunk).at == expected


def parse_bytes(digits):
    """Return the expression for each byte by trying all 256 against the digits."""
    out = b""
    for at in range(0, len(digits), 2):
        fits = [
            re.escape(bytes([byte]))
            for byte in range(256)
            if all(w in ("?", d) for w, d in zip(digits[at : at + 2], f"{byte:02x}", strict=True))
        ]
        out += b"(?:" + b"|".join(fits) + b")"
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_value_is_found_where_it_stands(dtype, data, draw):
    endian = draw.draw(st.sampled_from(["little", "big"]))
    size, start = DTYPES[dtype][0], draw.draw(st.integers(0, len(data)))
    values = decode(data[: len(data) // size * size], dtype, endian)
    whole = [value for value in values.tolist() if value == value]
    low, high = (draw.draw(st.sampled_from(whole or [0])) for _ in range(2))
    low, high = min(low, high), max(low, high)
    found = [size * i for i, value in enumerate(values.tolist()) if low <= value <= high]
    backward = draw.draw(st.booleans())
    ahead = [at for at in found if (at < start if backward else at >= start)] or found
    matcher = parse_wanted(f"{low}..{high}", "value", dtype, endian)
    got = searched([data], start, matcher, backward, chunk=size * draw.draw(st.integers(1, 4)))
    assert got.at == (ahead[-1 if backward else 0] if ahead else -1)


@pytest.mark.parametrize(
    ("text", "kind", "pattern"),
    [
        ("00 ff 1A", "hex", b"\x00\xff\x1a"),
        ("0x00,0xff", "hex", b"\x00\xff"),
        ("00ff1a", "hex", b"\x00\xff\x1a"),
        ("0a 2a 5c", "hex", b"\n*\\"),
        ("größe", "text", "größe".encode()),
        ("a.c", "text", b"a.c"),
        ("00", "text", b"00"),
    ],
)
def test_a_pattern_is_hex_or_text(text, kind, pattern):
    data = b"abc\xff\x00" + pattern
    assert searched([data], 0, parse_wanted(text, kind)).at == 5


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", "hex", "1 to 4,096"),
        ("", "text", "1 to 4,096"),
        ("a" * 4097, "text", "1 to 4,096"),
        ("??" * 65, "hex", "65 bytes; it must have 1 to 64"),
        ("0", "hex", "two hex digits"),
        ("xy", "hex", "two hex digits"),
        ("a", "glob", "'text', 'regex', 'hex' or 'value'"),
        ("x", "value", "'x' is no u8"),
        ("1.5", "value", "'1.5' is no u8"),
        ("9..1", "value", "empty range"),
        ("256", "value", "0 to 255"),
        ("", "value", "is no u8"),
    ],
)
def test_what_cannot_be_found_is_refused(text, kind, message):
    with pytest.raises(ValueError, match=message):
        parse_wanted(text, kind)


def test_bytes_shown_for_the_first_time_have_not_changed():
    tracker, data = ChangeTracker(), bytes(2 * BLOCK)
    assert tracker.flags(("dpu",), 0, [data]) == b""
    changed = bytearray(data)
    changed[300] = 9
    flags = tracker.flags(("dpu",), 0, [bytes(changed)])
    assert [at for at, flag in enumerate(flags) if flag] == [300]
    assert flags[300] == 1
    assert tracker.flags(("dpu",), 0, [bytes(changed)]) == flags, "until it is marked as seen"
    tracker.mark()
    assert tracker.flags(("dpu",), 0, [bytes(changed)]) == b""


def test_each_source_has_its_own_changes_and_both_have_differences():
    tracker = ChangeTracker()
    before, after = bytes(8), bytes([0, 5, 0, 0, 0, 0, 0, 0])
    assert tracker.flags(("dpu", "host"), 0, [before, before]) == b""
    assert tracker.flags(("dpu", "host"), 0, [before, after])[1] == 2 | 4
    assert tracker.flags(("dpu",), 0, [after])[1] == 1


def test_reads_are_of_whole_blocks_within_the_region():
    assert block_range(0, 10, 1000) == (0, 256)
    assert block_range(255, 2, 1000) == (0, 512)
    assert block_range(990, 10, 1000) == (768, 1000)


@given(st.binary(min_size=1, max_size=64))
def test_what_is_copied_for_python_and_numpy_is_the_same_bytes(data):
    assert eval(format_bytes(data, "python")) == data
    array = eval(format_bytes(data, "numpy", "u8"), {"np": np})
    assert array.tobytes() == data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_a_numpy_expression_has_the_type_that_is_shown(dtype, endian):
    array = eval(format_bytes(bytes(range(16)), "numpy", dtype, endian), {"np": np})
    assert array.nbytes == 16
    assert array.itemsize == DTYPES[dtype][0]
    assert array.dtype.newbyteorder("=") == DTYPES[dtype][1]
    if array.itemsize > 1:
        assert int(array.view(array.dtype.str[0] + f"u{array.itemsize}")[0]) == int.from_bytes(
            bytes(range(array.itemsize)), endian
        )


def test_bytes_are_copied_as_hex_text_and_c():
    assert format_bytes(b"\x00\xffA", "hex") == "00 ff 41"
    assert format_bytes(b"A\xff", "text") == "A�"
    assert "const uint8_t data[2] = {\n  0x41, 0xff,\n};" in format_bytes(b"A\xff", "c")


def test_half_a_value_and_an_unknown_form_are_refused():
    with pytest.raises(ValueError, match="not a multiple of the 4 bytes of a u32"):
        format_bytes(bytes(3), "numpy", "u32")
    with pytest.raises(ValueError, match="unknown copy format 'rust'"):
        format_bytes(b"a", "rust")
