"""`dgkit.empty`: memory on the host, on the host for the GPU too, or on a GPU."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from ..errors import Unsupported
from .host import HostMemory
from .placement import choose, parse_on
from .shape import as_shape, total_size

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, Literal, SupportsIndex, overload

    from .gpu import GpuMemory
else:

    def overload(function: object) -> object:
        """For type checkers alone."""
        return function


__all__ = ["empty"]


@overload
def empty(  # noqa: D103
    shape: SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: Literal["host"] = "host",
    readonly_export: bool = False,
    name: str | None = None,
) -> HostMemory: ...
@overload
def empty(  # noqa: D103, F811
    shape: SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: str,
    readonly_export: bool = False,
    name: str | None = None,
) -> Any: ...


def empty(  # noqa: F811
    shape: SupportsIndex | Iterable[SupportsIndex],
    dtype: Any = "u1",
    *,
    on: str = "host",
    readonly_export: bool = False,
    name: str | None = None,
) -> HostMemory | GpuMemory:
    """Allocates memory of `shape` items of `dtype`, zero at first.

    `on`: "host"; "pinned", host memory that every GPU reaches as well; "gpu", the GPU whose context
    is current, else the first; "cuda:1", that GPU; "auto", a GPU if one can be used, else the host:
    what was chosen, and why, is in the memory's `chosen` and in its repr.

    With `readonly_export` no other process can ever map it writable, whatever it tries
    (F_SEAL_FUTURE_WRITE, then F_SEAL_SEAL: fcntl(2)); Unsupported on a GPU, which has no such lock.
    OutOfMemory if the bytes are not there, LimitReached if no more files or mappings may be open,
    ValueError for no bytes, DeviceUnavailable if the GPU cannot be used: why, and what to do.
    """
    lengths = as_shape(shape)
    total_size(lengths, dtype)  # what is wrong with them is said first
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
        from .pinned import PinnedMemory

        return PinnedMemory(shape, dtype, **options)
    return HostMemory(shape, dtype, **options)


def _on_gpu(
    shape: tuple[int, ...], dtype: Any, gpu: int | None, *, readonly_export: bool, name: str | None
) -> GpuMemory:
    if readonly_export:
        raise Unsupported(
            errno.EOPNOTSUPP,
            "readonly_export=True is for host memory: who holds the fd of GPU memory can map it "
            "writable. Export its region with access='r', which importers map read-only",
        )
    from .gpu import GpuMemory

    return GpuMemory(shape, dtype, gpu=gpu, name=name)
