"""The option `--on`, where the host's memory is, and the choice of a provider that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from ..types import OWN_EXPORT
from .console import notice_after

_GPU_PROVIDERS = {None, "cuda", *OWN_EXPORT}
F = TypeVar("F", bound=Callable[..., Any])
_WAITING = (
    "dgkit: waiting for the NVIDIA driver (cuInit). If it does not return, check `nvidia-smi` and "
    "`dmesg | grep NVRM`"
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


def _parse(text: str) -> str:
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
        type=_parse,
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
        place = _auto(provider)
        return place if local else Place(on, place.provider)
    on_gpu = on not in ("host", "pinned")
    if local and on_gpu and provider not in _GPU_PROVIDERS:
        raise click.UsageError(
            f"--provider {provider} cannot reach GPU memory: use --provider cuda, or omit it"
        )
    if local and on != "host":
        with driver_notice():
            memory.empty(1, on=on).close()
    return Place(on, provider or ("cuda" if on_gpu else "soft"))


def _auto(provider: str | None) -> Place:
    from ..memory.allocate import choose

    with driver_notice():
        on, chosen = choose(readonly_export=False)
    if on == "gpu" and provider == "verbs":
        on, chosen = "host", "host memory: an RDMA adapter may refuse GPU memory; --on gpu tries it"
    if on == "gpu" and provider not in _GPU_PROVIDERS:
        on, chosen = "host", f"host memory: the provider {provider!r} cannot reach GPU memory"
    return Place(on, provider or ("cuda" if on == "gpu" else "soft"), chosen)


def driver_notice() -> AbstractContextManager[None]:
    """Print a notice if initializing the NVIDIA driver in this block takes long or hangs."""
    return notice_after(_WAITING)
