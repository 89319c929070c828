# SPDX-License-Identifier: Apache-2.0
"""Latency and rate measured by loops in the C core, called block by block."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..types import Op, Status
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds
from .buffer_export import exported
from .completion import raise_failed
from .context import provider_name
from .region import region_ids
from .work_request import wr_fields

if TYPE_CHECKING:
    from .prepared import PreparedOp
    from .queue import Queue
    from .region import Region, RemoteRegion

_BLOCK = 2000  # samples between two checks for signals and updates of a progress bar
_OFFSETS = ("local_offset", "remote_offset")
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Samples:
    """Latencies in ns, in the order in which they were measured, and the path that they took."""

    ns: array[int]
    path: str
    provider: str


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations, bytes and elapsed ns of a measurement window, and how many operations failed.

    `path` is `inline`, `worker`, or `mixed` if operations took both.
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
    count: int = 10_000,
    progress: Progress | None = None,
    **shape: int,
) -> Samples:
    """Measure the latency of `count` transfers, one after another.

    Args:
        queue: Queue to post to.
        op: `"read"` or `"write"`.
        count: Number of transfers.
        progress: Called with the completed share, 0 to 1.
        shape: `size` of one transfer (64 bytes by default), `local_offset`, `remote_offset`.

    Returns:
        Latencies in ns, each from before the submission to after the completion was reaped.

    Raises:
        TransferError: A transfer failed.
    """
    shape = {"size": 64, **shape}
    prepared = queue._prepare(wr_fields(_op(op), region_ids(local, remote), shape))
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    status = ffi.new("int32_t *")
    # Large copies go in smaller blocks, of about 16 MiB, so that signals are handled in time.
    block = max(1, min(_BLOCK, (1 << 24) // shape["size"]))
    done = 0
    with prepared:
        handle = prepared._handle()
        while done < count:
            n = min(block, count - done)
            done += check(lib.dg_measure_latency(handle.c, n, raw + done, status))
            if status[0] != Status.OK:
                raise_failed(prepared.completion)
            if progress:
                progress(done / count)
        return Samples(
            samples, prepared.completion.path, provider_name(queue.device.provider, remote.emulated)
        )


def rate(
    queue: Queue,
    local: Region,
    remote: RemoteRegion,
    *,
    op: str = "write",
    window: int = 32,
    seconds: float = 1.0,
    progress: Progress | None = None,
    **shape: int,
) -> Rate:
    """Measure the throughput with `window` transfers in flight.

    The transfers use as many consecutive parts of both regions as fit, starting at the offsets.

    Args:
        queue: Queue to post to.
        op: `"read"` or `"write"`.
        window: Transfers in flight.
        seconds: Duration of the measurement.
        progress: Called with the completed share, 0 to 1.
        shape: `size` of one transfer (64 bytes by default), `local_offset`, `remote_offset`.
    """
    raw = ffi.new("dg_wr[]", _window(_op(op), local, remote, {"size": 64, **shape}, window))
    out = ffi.new("dg_rate *")
    if seconds is None or seconds == float("inf"):
        raise ValueError(f"seconds is {seconds}; a rate is measured for a limited time")
    total, duration_ns = [0, 0, 0, 0, 0], nanoseconds(seconds, "seconds")
    while total[2] < duration_ns:
        part = min(100_000_000, duration_ns - total[2])
        check(lib.dg_measure_rate(queue._q.c, raw, len(raw), window, part, out))
        figures = (out.ops, out.bytes, max(1, out.elapsed_ns), out.failed, out.inlined)
        total = [a + b for a, b in zip(total, figures, strict=True)]
        if progress:
            progress(min(1.0, total[2] / duration_ns))
    ops, size, elapsed_ns, failed, inlined = total
    path = "worker" if inlined == 0 else "inline" if inlined == ops else "mixed"
    return Rate(
        ops, size, elapsed_ns, failed, path, provider_name(queue.device.provider, remote.emulated)
    )


def _window(
    op: Op, local: Region, remote: RemoteRegion, shape: dict[str, int], window: int
) -> list[dict[str, int]]:
    """Return work requests for consecutive parts of both regions, at most `window` of them."""
    first = wr_fields(op, region_ids(local, remote), shape)
    size, starts = first["size"], {name: first.get(name, 0) for name in _OFFSETS}
    room = min(local.size - starts["local_offset"], remote.size - starts["remote_offset"])
    n = max(1, min(room // size, whole("window", window, 1)))
    return [
        {**first, **{name: start + at for name, start in starts.items()}}
        for at in range(0, n * size, size)
    ]


def floor(size: int, count: int = 2000, handoff: bool = True) -> array[int]:
    """Measure this machine's lower bound of a transfer's latency.

    Args:
        size: Bytes to copy.
        count: Number of samples.
        handoff: A second thread sees a doorbell, copies with memcpy and sets a flag. If False, the
            calling thread does one memcpy.

    Returns:
        `count` times in ns.

    Raises:
        Unsupported: `handoff` with only one CPU.
    """
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    check(lib.dg_measure_floor(int(handoff), whole("size", size, 1), count, raw))
    return samples


def answer(memory: Any, timeout: float) -> None:
    """Answer a kernel's doorbells: the CPU side of the lower bound of a kernel's operations.

    Args:
        memory: From `dgkit.empty`, host or pinned. The kernel stores 1, 2, ... to its first 8
            bytes, waits each time for the same value at byte 64, and finally stores 2**64 - 1.
        timeout: Maximum number of seconds without a doorbell.

    Raises:
        PeerTimeout: No doorbell was rung for `timeout` seconds.
    """
    limit = nanoseconds(timeout, "timeout")
    check(lib.dg_measure_answer(ffi.cast("uint64_t *", exported(memory.buffer)[0]), limit))


def measure_bare(prepared: PreparedOp, count: int = 2000, window: int = 1) -> array[int]:
    """Measure a prepared operation's lower bound: only the provider's calls, no queue or checks.

    Args:
        prepared: Operation to measure.
        count: Number of samples.
        window: Copies in flight.

    Returns:
        `count` times in ns, each from the end of the previous copy to the end of this one.

    Raises:
        Unsupported: The provider has no such measurement (`soft`: use `floor`).
    """
    handle = prepared._handle()
    samples = array("Q", bytes(8 * whole("count", count, 1)))
    raw = ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    block = 500  # signals are handled between blocks
    for done in range(0, count, block):
        n = min(block, count - done)
        check(lib.dg_measure_bare(handle.c, n, min(whole("window", window, 1), n), raw + done))
    return samples
