"""What several commands read from the command line: sizes, lists, `--json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["address", "as_json", "duration", "listed", "one_of", "size", "whole"]

_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t")
_LARGEST = 2**63 - 1  # what a request can carry (wire/requests.py)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def size(text: str | int) -> int:
    """`4096`, `64K`, `1.5GiB` in bytes; K is 1024. BadParameter unless it is one byte or more."""
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise click.BadParameter(f"{text!r} is no size: write bytes, or 64K, 512M, 4G (K is 1024)")
    whole, part, unit = match[1], match[2] or "", match[3].lower()
    scaled = int(whole + part) * (1 << 10 * _UNITS.index(unit))
    scale: int = 10 ** len(part)
    found, left = divmod(scaled, scale)
    if left or not found:
        raise click.BadParameter(f"{text!r} is no whole number of bytes, one or more")
    if found > _LARGEST:
        raise click.BadParameter(f"{text!r} is more than any machine has: the limit is {_LARGEST}")
    return found


def duration(low: float, high: float) -> Callable[[str | float], float]:
    """A parser of seconds from `low` to `high`; nan, which compares with nothing, is none."""

    def parse(text: str | float) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not low <= seconds <= high:
            raise click.BadParameter(f"{text!r} is no time: {low:g} to {high:g} seconds")
        return seconds

    return parse


def address(text: str) -> str:
    """An address as it is; BadParameter says what is wrong with it."""
    from ..wire.address import parse

    try:
        parse(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    return text


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise click.BadParameter(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes these words alone."""

    def parse(text: str) -> str:
        if text not in words:
            raise click.BadParameter(f"{text!r} is none of: {', '.join(words)}")
        return text

    return parse


def listed(parse: Callable[[str], T]) -> Callable[[str | tuple[T, ...]], tuple[T, ...]]:
    """A parser of items with commas between them; each item once, in the order given."""

    def split(text: str | tuple[T, ...]) -> tuple[T, ...]:
        if isinstance(text, tuple):
            return text
        return tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))

    return split


def as_json(command: F) -> F:
    """Adds `--json`: nothing but JSON on stdout."""
    return click.option(
        "--json", "json_", is_flag=True, help="Print JSON, and nothing else, on stdout."
    )(command)
