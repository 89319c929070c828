"""Scanner for C and JavaScript: comments, string literals and code, each with its line."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Token(NamedTuple):
    """`kind` is comment, string, name or mark (any other character that is not space)."""

    kind: str
    text: str
    line: int


_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<space>\s+|\d\w*)
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# A slash after one of these begins a regular expression, which may contain quotes.
_REGEX = re.compile(
    r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])*/\w*"
)
_BEFORE_REGEX = set("(,=:[!&|?{};>")


def tokens(text: str, *, regex: bool = False) -> Iterator[Token]:
    """Yield the tokens of C source, or of JavaScript if `regex` literals are to be recognized."""
    at, line, last = 0, 1, "("
    while at < len(text):
        found = (
            _REGEX.match(text, at) if regex and text[at] == "/" and last in _BEFORE_REGEX else None
        )
        kind = "space"
        if found is None or text[at + 1] in "/*":
            found = _TOKEN.match(text, at)
            assert found is not None
            kind = found.lastgroup or ""
        if kind != "space":
            yield Token(kind, found[0], line)
        if kind not in ("space", "comment"):
            last = found[0][-1]
        elif kind == "space" and not found[0].isspace():
            last = "0"
        line += found[0].count("\n")
        at = found.end()
