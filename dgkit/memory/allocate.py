# SPDX-License-Identifier: Apache-2.0
"""`dgkit.empty`: allocate memory on the host, pinned on the host, or on a GPU."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from ..errors import Unsupported
from .host import HostMemory
from .shape import as_shape, total_size

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, Literal, SupportsIndex, overload

    from .gpu import GpuMemory
else:

    def overload(function: object) -> object:
        """Pass functions through; replaces `typing.overload` at run time."""
        return function


_CHOICES = "'host', 'pinned', 'gpu', 'cuda:0' (or another number), 'auto' or 'bar' (of a testbed)"


@overload
def empty(  # noqa: D103
    shape: str | SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: Literal["host"] = "host",
    readonly_export: bool = False,
    name: str | None = None,
) -> HostMemory: ...
@overload
def empty(  # noqa: D103, F811
    shape: str | SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: str,
    readonly_export: bool = False,
    name: str | None = None,
) -> Any: ...


def empty(  # noqa: F811
    shape: str | SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: str = "host",
    readonly_export: bool = False,
    name: str | None = None,
) -> HostMemory | GpuMemory:
    """Allocate zeroed memory of `shape` items of `dtype`.

    Args:
        shape: Number of items, a tuple of them, or a text such as "16M" (K is 1024).
        dtype: NumPy dtype or its name.
        on: `"host"`; `"pinned"`, host memory that every GPU can access; `"gpu"`, the GPU of the
            current CUDA context, else the first; `"cuda:1"`, that GPU; `"auto"`, a GPU if one can
            be used, else the host (the memory's `chosen` and repr say which, and why); `"bar"`,
            memory of a testbed's host guest that its DPU guest sees as a PCI BAR (emulated).
        readonly_export: Prevent other processes from mapping the memory writable, for ever
            (F_SEAL_FUTURE_WRITE, then F_SEAL_SEAL: fcntl(2)). Host memory only.
        name: Shown in its repr and cards.

    Raises:
        OutOfMemory: Too little memory is available.
        LimitReached: Too many files or mappings are open.
        ValueError: The shape has no bytes, or `on` is unknown.
        Unsupported: `readonly_export` for GPU memory or the BAR.
        DeviceUnavailable: The GPU or the BAR cannot be used; the message says why and what to do.
    """
    lengths = as_shape(shape)
    total_size(lengths, dtype)  # report an invalid shape or dtype before an invalid place
    kind, number = parse_on(on)
    chosen = ""
    if kind == "auto":
        kind, chosen = choose(readonly_export)
    memory = _make(kind, lengths, dtype, number, readonly_export=readonly_export, name=name)
    memory.chosen = chosen
    return memory


def _make(
    kind: str, shape: tuple[int, ...], dtype: Any, gpu: int | None, **options: Any
) -> HostMemory | GpuMemory:
    if kind == "gpu":
        return _on_gpu(shape, dtype, gpu, **options)
    if kind == "pinned":
        from .gpu import PinnedMemory

        return PinnedMemory(shape, dtype, **options)
    if kind == "bar":
        from .bar import BarMemory

        return BarMemory(shape, dtype, **options)
    return HostMemory(shape, dtype, **options)


def _on_gpu(
    shape: tuple[int, ...], dtype: Any, gpu: int | None, *, readonly_export: bool, name: str | None
) -> GpuMemory:
    if readonly_export:
        raise Unsupported(
            errno.EOPNOTSUPP,
            "readonly_export=True is for host memory: any process with the fd of GPU memory can "
            "map it writable. Export its region with access='r', which importers map read-only",
        )
    from .gpu import GpuMemory

    return GpuMemory(shape, dtype, gpu=gpu, name=name)


def parse_on(on: str) -> tuple[str, int | None]:
    """Return the kind of place and the GPU's index (None if not given). Raises ValueError."""
    if isinstance(on, str):
        if on in ("host", "pinned", "gpu", "auto", "bar"):
            return on, None
        kind, _, number = on.partition(":")
        if kind == "cuda" and number.isascii() and number.isdecimal() and len(number) < 5:
            return "gpu", int(number)
    raise ValueError(f"on is {on!r}; it must be {_CHOICES}")


def choose(readonly_export: bool) -> tuple[str, str]:
    """Return what "auto" becomes, "gpu" or "host", and why."""
    if readonly_export:
        return "host", "host memory: readonly_export=True requires it"
    from .gpu_info import why_no_gpu

    why = why_no_gpu()
    return ("host", f"host memory: {why}") if why else ("gpu", "GPU memory: a GPU can be used here")
