"""Parsers of option values, and options, that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def size(text: str | int) -> int:
    """Parse a size of at least one byte, such as `4096`, `64K`, `1.5GiB`; K is 1024."""
    if isinstance(text, int):
        return text
    from ..units import parse_size

    try:
        return parse_size(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


def duration(low: float, high: float) -> Callable[[str | float], float]:
    """Return a parser of seconds from `low` to `high`, which rejects nan."""

    def parse(text: str | float) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not low <= seconds <= high:
            raise click.BadParameter(f"{text!r} is not a time from {low:g} to {high:g} seconds")
        return seconds

    return parse


def address(text: str) -> str:
    """Check that text is the address of an agent and return it unchanged."""
    from ..wire.address import parse

    try:
        parsed = parse(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if parsed.tcp and not parsed.key:
        raise click.BadParameter(
            f"{text!r} has no key: use tcp://HOST:PORT?key=KEY, as `dgkit serve` prints it"
        )
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise click.BadParameter(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def choice(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts these words only."""

    def parse(text: str) -> str:
        if text not in words:
            raise click.BadParameter(f"{text!r} is not one of: {', '.join(words)}")
        return text

    return parse


def comma_separated(parse: Callable[[str], T]) -> Callable[[str | tuple[T, ...]], tuple[T, ...]]:
    """Return a parser of comma-separated items, which drops repeated ones."""

    def split(text: str | tuple[T, ...]) -> tuple[T, ...]:
        if isinstance(text, tuple):
            return text
        return tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))

    return split


def as_json(command: F) -> F:
    """Add the option `--json`."""
    return click.option("--json", "json_", is_flag=True, help="Print only JSON on stdout.")(command)


# Of `dgkit demo` and `dgkit bench`.
provider_option = click.option(
    "--provider",
    type=choice("soft", "cuda", "verbs", "softdoca", "doca"),
    metavar="NAME",
    help="What moves the bytes: soft, cuda, verbs, softdoca or doca. Default: soft, or cuda for "
    "GPU memory.",
)

# Of measurements, by `dgkit bench` and `dgkit fleet`.
ops_option = click.option(
    "--ops",
    type=comma_separated(choice("write", "read")),
    default="write,read",
    metavar="LIST",
    help="write: DPU to host; read: host to DPU.",
)
count_option = click.option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    help="Samples per latency; fewer for large sizes.",
)
seconds_option = click.option(
    "--seconds",
    type=duration(0.01, 60),
    default=0.2,
    metavar="SECONDS",
    help="Duration of each rate measurement.",
)
