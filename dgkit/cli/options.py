"""What several commands read from the command line: sizes, lists, `--json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["address", "as_json", "duration", "listed", "one_of", "size", "whole"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def size(text: str | int) -> int:
    """`4096`, `64K`, `1.5GiB` in bytes; K is 1024. BadParameter unless it is one byte or more."""
    if isinstance(text, int):
        return text
    from ..units import parse_size

    try:
        return parse_size(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


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
