"""Tokens of a line, separated by whitespace outside quotes and brackets."""

from __future__ import annotations

import ast
from dataclasses import dataclass

_CLOSERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as typed; `closed` if its quotes and brackets are closed."""

    text: str
    closed: bool = True


def tokenize(line: str) -> list[Token]:
    """Return the tokens of a line, up to a `#` at the start of a token.

    `b"a b"`, `f(1, 2)` and `"de ad"` are one token each and keep their quotes.
    """
    tokens: list[Token] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line) or line[at] == "#":
            return tokens
        end, closed = _end(line, at)
        tokens.append(Token(line[at:end], closed))
        at = end


def _end(line: str, at: int) -> tuple[int, bool]:
    """Return the end of the token that starts at `at`, and whether it is closed."""
    expected: list[str] = []  # the closing characters expected, innermost last
    while at < len(line):
        char, quoted = line[at], bool(expected) and expected[-1] in "'\""
        if expected and char == expected[-1]:
            expected.pop()
        elif quoted:
            at += char == "\\"
        elif char in "'\"":
            expected.append(char)
        elif char in _CLOSERS:
            expected.append(_CLOSERS[char])
        elif char.isspace() and not expected:
            break
        at += 1
    return min(at, len(line)), not expected


def unquote(text: str) -> str:
    """Return the value of a token that is a Python string literal, or any other token unchanged."""
    if text[:1] in ("'", '"'):
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
        if isinstance(value, str):
            return value
    return text
