"""Plain values that the DPU takes and returns.

Results are named tuples because an agent's reply has the same fields in the same order, after the
number of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..types import Path

if TYPE_CHECKING:
    from ..dma.completion import Completion

_PATHS = {str(path): path.value for path in Path}

MachineFields = dict[str, "str | int | bool | None"]


class Moved(NamedTuple):
    """Result of a copy. Timestamps are those of its last DMA; those named `first_`, of its first.

    `op` is a code of dgkit.types.Op, `path` one of dgkit.types.Path. `read_ns` and `write_ns` are
    the summed latencies of its DMA reads and of its DMA writes, over `chunks` chunks.
    """

    size: int
    op: int
    path: int
    submit_ns: int
    post_ns: int
    complete_ns: int
    read_ns: int
    write_ns: int
    chunks: int
    first_submit_ns: int = 0
    first_post_ns: int = 0
    first_complete_ns: int = 0


def moved(
    first: Completion, last: Completion, size: int, read_ns: int, write_ns: int, chunks: int
) -> Moved:
    """Return the result of a copy from the completions of its first and its last DMA."""
    totals = (read_ns, write_ns, chunks)
    return Moved(size, int(last.op), _PATHS[last.path], *last.stamps, *totals, *first.stamps)


class Digested(NamedTuple):
    """SHA-256 in hex digits, and the summed latency of the DMA reads."""

    sha256: str
    dma_ns: int


class LatencyTask(NamedTuple):
    """Time `samples` transfers of `size` bytes at `offset` of a region; codes as in Moved."""

    offset: int
    size: int
    op: int
    samples: int
    path: int


class RateTask(NamedTuple):
    """Keep `window` transfers of `size` bytes in flight for `seconds`; codes as in Moved."""

    size: int
    op: int
    window: int
    seconds: float
    path: int


class WatchTask(NamedTuple):
    """Time `samples` transfers every `every_s` seconds; the other fields as in LatencyTask."""

    offset: int
    size: int
    op: int
    samples: int
    path: int
    every_s: float


class LatencyResult(NamedTuple):
    """End of a latency measurement, whose samples were passed on in `blocks` blocks.

    The floors are in ns per copy, before and after; 0 if not measured. `sleeps` is how often the
    engine slept during the measurement.
    """

    blocks: int
    path: str
    floor_before: int
    floor_after: int
    machine: MachineFields
    sleeps: int


class RateResult(NamedTuple):
    """Result of a bandwidth measurement; floors and `sleeps` as in LatencyResult."""

    ops: int
    moved: int
    elapsed_ns: int
    failed: int
    path: str
    floor_before: int
    floor_after: int
    machine: MachineFields
    sleeps: int


class SampleBlock(NamedTuple):
    """Block of samples of a monitor; the fields are those of dgkit.wire.telemetry.Sampled."""

    number: int
    t_ns: int
    provider: str
    source: str
    samples: bytes
    op: str
    size: int
    path: str


class MeasurementListener(Protocol):
    """Receives the samples and the progress of a measurement, in the thread that measures."""

    def add_block(self, number: int, samples: bytes) -> None:
        """Take latencies: u64 nanoseconds in native byte order; blocks are numbered from 0."""

    def add_progress(self, done: int, total: int) -> None:
        """Take the progress of the measurement."""

    def check(self) -> None:
        """Raise to end the measurement, else return; called between its slices."""
