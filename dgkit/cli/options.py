# SPDX-License-Identifier: Apache-2.0
"""Parsers of option values, and options, that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from ..types import DEFAULT_PROVIDER, OWN_EXPORT
from .console import JSON_FILE, notice_after
from .json_file import file_option, output_file

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_GPU_PROVIDERS = {None, "cuda", *OWN_EXPORT}
_WAITING = (
    "dgkit: waiting for the NVIDIA driver (cuInit). If it does not return, check `nvidia-smi` and "
    "`dmesg | grep NVRM`"
)


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
    """Check that text is the address of an agent, or "bluefield"; return it unchanged."""
    from ..wire.address import parse
    from ..wire.saved import BLUEFIELD

    if text == BLUEFIELD:
        return text
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
    """Add the option `--json [FILE]`, which print_json() obeys; the command gets a Boolean."""

    def chosen(ctx: click.Context, _: click.Parameter, value: str | None) -> bool:
        ctx.meta[JSON_FILE] = output_file(value)
        return value is not None

    return file_option(callback=chosen, help="Print only JSON: on stdout, or to FILE.")(command)


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


class Place:
    """Place of the memory and the provider that reaches it.

    Attributes:
        on: Place, as for dgkit.empty().
        provider: Name of the provider.
        chosen: Why `auto` chose this place; "" if the place was given.
        gpu: Number of the GPU that copies, for the provider cuda.
    """

    __slots__ = ("chosen", "gpu", "on", "provider")

    def __init__(self, on: str, provider: str, chosen: str = "") -> None:
        self.on, self.provider, self.chosen = on, provider, chosen
        self.gpu = int(on.removeprefix("cuda:")) if on.startswith("cuda:") else 0


def _place(text: str) -> str:
    from ..memory.allocate import parse_on

    try:
        parse_on(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a place: use host, pinned, gpu, cuda:N or auto"
        ) from None
    return text


def on_option(command: F) -> F:
    """Add the option `--on`."""
    return click.option(
        "--on",
        type=_place,
        default="host",
        metavar="PLACE",
        help="Where the host's memory is: host, pinned (host memory that a GPU reaches), gpu, "
        "cuda:N, or auto (a GPU if one is usable).",
    )(command)


def resolve_place(on: str, provider: str | None, *, local: bool = True) -> Place:
    """Combine `--on` and `--provider`; without `--provider`, choose one that reaches the memory.

    Args:
        on: Value of `--on`.
        provider: Value of `--provider`.
        local: Whether this process allocates the memory. If so, one byte of it is allocated now,
            so that an error appears early.

    Raises:
        DeviceUnavailable: That kind of memory is not usable on this machine.
        OutOfMemory: No such memory is free.
        click.UsageError: The provider does not reach the memory.
    """
    from .. import memory

    if on == "auto":
        place = _automatic_place(provider)
        return place if local else Place(on, place.provider)
    on_gpu = on not in ("host", "pinned")
    if local and on_gpu and provider not in _GPU_PROVIDERS:
        raise click.UsageError(
            f"--provider {provider} cannot reach GPU memory: use --provider cuda, or omit it"
        )
    if local and on != "host":
        with driver_notice():
            memory.empty(1, on=on).close()
    return Place(on, provider or ("cuda" if on_gpu else DEFAULT_PROVIDER))


def _automatic_place(provider: str | None) -> Place:
    from ..memory.allocate import choose

    with driver_notice():
        on, chosen = choose(readonly_export=False)
    if on == "gpu" and provider == "verbs":
        on, chosen = "host", "host memory: an RDMA adapter may refuse GPU memory; --on gpu tries it"
    if on == "gpu" and provider not in _GPU_PROVIDERS:
        on, chosen = "host", f"host memory: the provider {provider!r} cannot reach GPU memory"
    return Place(on, provider or ("cuda" if on == "gpu" else DEFAULT_PROVIDER), chosen)


def driver_notice() -> AbstractContextManager[None]:
    """Print a notice if initializing the NVIDIA driver in this block takes long or hangs."""
    return notice_after(_WAITING)
