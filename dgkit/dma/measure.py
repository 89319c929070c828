"""Measuring: the C core takes every sample; Python only asks for blocks of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..types import Op, Status
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds
from .completion import completion_at, raise_failed
from .work_request import record

if TYPE_CHECKING:
    from .prepared import PreparedOp
    from .queue import Queue
    from .region import Region, RemoteRegion

__all__ = ["Rate", "Samples", "copy_methods", "copy_ns", "floor", "latency"]
__all__ += ["measure_bare", "rate"]

_BLOCK = 2000  # samples between two chances for a signal or a progress bar
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Samples:
    """Latencies in ns, in the order in which they were taken, and which path they took."""

    ns: array[int]
    path: str
    provider: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What a window moved: operations, bytes, elapsed ns, and how many operations failed.

    `path` is `inline`, `worker`, or `mixed` where some operations took one and some the other.
    """

    ops: int
    bytes: int
    elapsed_ns: int
    failed: int
    path: str
    provider: str


def _op(op: str) -> Op:
    if op not in ("read", "write"):
        raise ValueError(f"op is {op!r}; it must be 'read' or 'write'")
    return Op[op.upper()]


def latency(
    queue: Queue,
    local: Region,
    remote: RemoteRegion,
    *,
    op: str = "write",
    size: int = 64,
    count: int = 10_000,
    local_offset: int = 0,
    remote_offset: int = 0,
    progress: Progress | None = None,
) -> Samples:
    """`count` transfers one after another: from before each is submitted until it is reaped, ns.

    `progress` is called with the share that is done, 0 to 1. TransferError if one fails.
    """
    shape = {"size": size, "local_offset": local_offset, "remote_offset": remote_offset}
    prepared = queue._prepare(record(_op(op), local, remote, shape))
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    status = ffi.new("int32_t *")
    # A block of large copies would keep signals waiting: about 16 MiB, and at least one.
    block = max(1, min(_BLOCK, (1 << 24) // size))
    done = 0
    with prepared:
        while done < count:
            n = min(block, count - done)
            done += check(lib.dg_measure_latency(prepared._op, n, raw + done, status))
            if status[0] != Status.OK:
                raise_failed(completion_at(prepared._wcs, 0))
            if progress:
                progress(done / count)
        return Samples(samples, prepared.completion.path, queue.device.provider)


def rate(
    queue: Queue,
    local: Region,
    remote: RemoteRegion,
    *,
    op: str = "write",
    size: int = 64,
    window: int = 32,
    seconds: float = 1.0,
    local_offset: int = 0,
    remote_offset: int = 0,
    progress: Progress | None = None,
) -> Rate:
    """Keeps `window` transfers of `size` bytes in flight for `seconds`.

    They lie one behind another in both regions, from the offsets on, as many as fit.
    """
    room = min(local.size - local_offset, remote.size - remote_offset)
    n = max(1, min(room // whole("size", size, 1), whole("window", window, 1)))
    shapes = [
        {"size": size, "local_offset": local_offset + at, "remote_offset": remote_offset + at}
        for at in range(0, n * size, size)
    ]
    raw = ffi.new("dg_wr[]", [record(_op(op), local, remote, shape) for shape in shapes])
    out = ffi.new("dg_rate *")
    total = [0, 0, 0, 0, 0]
    duration_ns = _finite(seconds)
    while total[2] < duration_ns:
        part = min(100_000_000, duration_ns - total[2])
        check(lib.dg_measure_rate(queue._q, raw, n, window, part, out))
        figures = (out.ops, out.bytes, max(1, out.elapsed_ns), out.failed, out.inlined)
        total = [a + b for a, b in zip(total, figures, strict=True)]
        if progress:
            progress(min(1.0, total[2] / duration_ns))
    path = "worker" if total[4] == 0 else "inline" if total[4] == total[0] else "mixed"
    return Rate(total[0], total[1], total[2], total[3], path, queue.device.provider)


def _finite(seconds: float) -> int:
    if seconds is None or seconds == float("inf"):
        raise ValueError(f"seconds is {seconds}; a rate is measured for a limited time")
    return nanoseconds(seconds, "seconds")


def floor(size: int, count: int = 2000, handoff: bool = True) -> array[int]:
    """The floor on this machine now, ns: a thread sees a doorbell, copies, sets a flag.

    With `handoff=False`: one memcpy here. Unsupported for a hand-off on one CPU.
    """
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    check(lib.dg_measure_floor(int(handoff), whole("size", size, 1), count, raw))
    return samples


def measure_bare(prepared: PreparedOp, count: int = 2000, window: int = 1) -> array[int]:
    """The floor under a prepared operation: the provider's own plain calls, no queue, no checks.

    Value i, in ns, is from the end of copy i - 1 to that of copy i, with `window` in flight.
    Unsupported where the provider has no such floor (`soft`; its floor is `floor`).
    """
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    # A block of large copies would keep signals waiting.
    block = 500
    for done in range(0, count, block):
        n = min(block, count - done)
        check(lib.dg_measure_bare(prepared._op, n, min(whole("window", window, 1), n), raw + done))
    return samples


def copy_methods() -> list[str]:
    """The names of the copy methods of the C core; the first is libc's memcpy."""
    names: list[str] = []
    while (name := lib.dg_copy_method(len(names))) != ffi.NULL:
        names.append(ffi.string(name).decode())
    return names


def copy_ns(method: int, size: int, count: int) -> array[int]:
    """`count` copies of `size` bytes by `copy_methods()[method]`, ns each."""
    source = ffi.from_buffer(bytearray(b"1") * whole("size", size, 1))
    target = ffi.from_buffer(bytearray(b"2") * size)
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    for i in range(count):
        start = lib.dg_now_ns()
        check(lib.dg_copy_with(method, target, source, size))
        samples[i] = lib.dg_now_ns() - start
    return samples
