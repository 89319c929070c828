"""`--on`: where the host's memory lies, and the provider that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from ..types import DOCA
from .console import patience

__all__ = ["Place", "driver_patience", "on_option", "settle"]

_REACH_GPU = {None, "cuda", *DOCA}
F = TypeVar("F", bound=Callable[..., Any])
_HANGS = (
    "dgkit: waiting for the NVIDIA driver (cuInit). If it never answers: `nvidia-smi`, and "
    "`dmesg | grep NVRM`"
)


class Place:
    """Memory `on` which place, which `provider` is to reach, and `chosen`: why, if it was auto.

    `gpu`: the number of the GPU that copies, for the provider cuda.
    """

    __slots__ = ("chosen", "gpu", "on", "provider")

    def __init__(self, on: str, provider: str, chosen: str = "") -> None:
        self.on, self.provider, self.chosen = on, provider, chosen
        self.gpu = int(on.removeprefix("cuda:")) if on.startswith("cuda:") else 0


def _parse(text: str) -> str:
    from ..memory.placement import parse_on

    try:
        parse_on(text)
    except ValueError:
        words = "host, pinned, gpu, cuda:0 (a number), or auto"
        raise click.BadParameter(f"{text!r} is no place: {words}") from None
    return text


def on_option(command: F) -> F:
    """Adds `--on`."""
    return click.option(
        "--on",
        type=_parse,
        default="host",
        show_default=True,
        metavar="PLACE",
        help="Where the host's memory lies: host, pinned (the GPU reaches it), gpu, cuda:1, or "
        "auto (a GPU if one is usable).",
    )(command)


def settle(on: str, provider: str | None, *, here: bool = True) -> Place:
    """What `--on` and `--provider` come to; without the second, the one that reaches the memory.

    DeviceUnavailable, OutOfMemory: memory of that kind cannot be had here, and why. It is tried,
    with the least there is, before a process is started; not so if it may be another's (`here`).
    UsageError: a provider is named that does not reach it.
    """
    from .. import memory

    if on == "auto":
        found = _auto(provider)
        return found if here else Place(on, found.provider)
    on_gpu = on not in ("host", "pinned")
    if here and on_gpu and provider not in _REACH_GPU:
        raise click.UsageError(
            f"--provider {provider} cannot reach memory on a GPU: leave it out, or take cuda"
        )
    if here and on != "host":
        with driver_patience():
            memory.empty(1, on=on).close()
    return Place(on, provider or ("cuda" if on_gpu else "soft"))


def _auto(provider: str | None) -> Place:
    from ..memory.placement import choose

    with driver_patience():
        on, chosen = choose(readonly_export=False)
    if on == "gpu" and provider not in _REACH_GPU:
        on, chosen = "host", f"host memory: the provider {provider!r} cannot reach GPU memory"
    return Place(on, provider or ("cuda" if on == "gpu" else "soft"), chosen)


def driver_patience() -> AbstractContextManager[None]:
    """Around what may start the NVIDIA driver, which may take long or hang: says so on stderr."""
    return patience(_HANGS)
