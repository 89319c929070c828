"""A line in words: whitespace parts them, but not inside quotes and brackets."""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["Word", "split", "unquoted"]

_CLOSERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Word:
    """As it was typed. `closed`: its quotes and brackets are."""

    text: str
    closed: bool = True


def split(line: str) -> list[Word]:
    """The words of a line, up to a `#` that starts one.

    `b"a b"`, `f(1, 2)` and `"de ad"` are one word each, and keep their quotes.
    """
    words: list[Word] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line) or line[at] == "#":
            return words
        end, closed = _end(line, at)
        words.append(Word(line[at:end], closed))
        at = end


def _end(line: str, at: int) -> tuple[int, bool]:
    """Where the word that starts at `at` ends, and whether all in it is closed."""
    waits: list[str] = []  # for these, the last first; a quote is closed by itself
    while at < len(line):
        char, quoted = line[at], bool(waits) and waits[-1] in "'\""
        if waits and char == waits[-1]:
            waits.pop()
        elif quoted:
            at += char == "\\"
        elif char in "'\"":
            waits.append(char)
        elif char in _CLOSERS:
            waits.append(_CLOSERS[char])
        elif char.isspace() and not waits:
            break
        at += 1
    return min(at, len(line)), not waits


def unquoted(text: str) -> str:
    """What is in the quotes, of a word that is a Python string; any other word as it is."""
    if text[:1] in ("'", '"'):
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
        if isinstance(value, str):
            return value
    return text
