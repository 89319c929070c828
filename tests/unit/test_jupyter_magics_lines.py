"""Tokens and parsed arguments of a line of %dma, without a notebook."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgkit.jupyter.grammar import COMMANDS, LineError, help_text, parse, tokenize, unquote


def texts(line):
    return [word.text for word in tokenize(line)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("a 'b c' d", ["a", "'b c'", "d"]),
        ('w r b"\\" # x" # why', ["w", "r", 'b"\\" # x"']),
        ("f(1, 2) [3, {4: 5}]", ["f(1, 2)", "[3, {4: 5}]"]),
        ("f(')', 1) x", ["f(')', 1)", "x"]),
        ("# all of it", []),
        ("a#b", ["a#b"]),
    ],
)
def test_whitespace_parts_words_but_not_in_quotes_and_brackets(line, words):
    assert texts(line) == words
    assert all(token.closed for token in tokenize(line))


@pytest.mark.parametrize("line", ["a 'b c", "f(1, 2", "x [')' ", '"\\', "{ 'a': \"b }"])
def test_what_is_not_closed_is_the_last_word_and_says_so(line):
    assert [token.closed for token in tokenize(line)][-1] is False
    with pytest.raises(LineError, match="not closed"):
        parse(f"write r {line}")


@given(st.text())
def test_words_are_parts_of_the_line_in_their_order(line):
    at = 0
    for word in tokenize(line):
        at = line.index(word.text, at) + len(word.text)


@given(st.text(min_size=1))
def test_quotes_keep_any_text_together(text):
    (word,) = tokenize(repr(text))
    assert unquote(word.text) == text


def test_what_is_no_string_keeps_its_quotes():
    assert [unquote(text) for text in ("b'x'", "'x", "'a' 'b", "x")] == [
        "b'x'",
        "'x",
        "'a' 'b",
        "x",
    ]


READ = {"region": "r", "offset": 0, "size": None, "out": None}
WRITE = {"region": "r", "data": None, "offset": 0, "hex": None, "out": None}


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("read r", READ),
        (
            "read --size 4K 'my region' --offset=0x10 -o v",
            READ | {"region": "'my region'", "offset": 16, "size": 4096, "out": "v"},
        ),
        ("read r --size len(x) --offset n", READ | {"offset": "n", "size": "len(x)"}),
        (
            "write r np.arange(4, dtype='u4') + 1 --offset 1MiB",
            WRITE | {"data": "np.arange(4, dtype='u4') + 1", "offset": 1 << 20},
        ),
        ("write r -x", WRITE | {"data": "-x"}),
        ('write r --hex "de ad 0xbe:ef"', WRITE | {"hex": b"\xde\xad\xbe\xef"}),
        (
            "latency r --size 64K --op read --count 20 --path worker --out t",
            {"region": "r", "size": 65536, "op": "read", "count": 20, "path": "worker", "out": "t"},
        ),
        ("info", {}),
        ("help write", {"command": "write"}),
        ("write --help", {"command": "write"}),
        ("", {"command": None}),
    ],
)
def test_a_line_says_what_to_do(line, args):
    call = parse(line)
    assert call.args == args
    assert not call.quiet


@pytest.mark.parametrize("line", ["read r;", "read r ; ", "info;", ";"])
def test_a_semicolon_keeps_it_quiet(line):
    assert parse(line).quiet


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raed r", "read, write, latency, info, help"),
        ("read", r"required: REGION.*%dma read REGION \[--offset N\]"),
        ("read r s", "unrecognized arguments: s"),
        ("read r --sise 4", "options: -o, --out, --offset, --size"),
        ("read r --size", "--size needs a value"),
        ("read r --size 4X", "K is 1024"),
        ("read r --size 0", "1 or more"),
        ("read r --offset 1+", "not a size"),
        ("read r -o a.b", "not a variable name"),
        ("write r", "either DATA or --hex"),
        ("write r x --hex 00", "either DATA or --hex"),
        ("write r 1 +", "not a Python expression"),
        ("write r --hex xy", "de ad be ef"),
        ("write r --hex ''", "it has no bytes"),
        ("latency r --op copy", "read.*write"),
        ("latency r --count 10K", "not a whole number"),
        ("info r", "unrecognized"),
        ("help raed", "there is no command `%dma raed`"),
    ],
)
def test_misuse_is_one_line_with_the_way_out(line, words):
    with pytest.raises(LineError, match=words) as caught:
        parse(line)
    assert "\n" not in str(caught.value)


def test_help_names_every_command_and_each_of_its_options():
    for name, command in COMMANDS.items():
        assert command.line in help_text(None)
        assert all(option in help_text(name) for option in command.options)
        assert all(option in command.line for option in command.options if option != "--out")


@given(st.text())
def test_no_line_ends_the_process_or_fails_otherwise(line):
    for start in ("", "read ", "write r ", "latency r --size "):
        with contextlib.suppress(LineError):
            parse(start + line)
