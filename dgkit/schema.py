# SPDX-License-Identifier: Apache-2.0
"""Tasks and results of the DPU: its functions take and return them, and messages carry them.

Each type is declared here once. On the wire it is an array of its fields in the order below, which
tests/unit/approved/messages.txt holds together with the protocol's version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

if TYPE_CHECKING:
    import numpy as np

MAX_SAMPLES = 1_000_000  # most in one latency measurement
MONITOR_SAMPLES = 4096  # most in one block of a monitor
EVERY_S = (0.01, 60.0)  # bounds of a monitor's period

Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
TransferOp = Annotated[int, Meta(ge=0, le=1)]  # code of dgkit.types.Op
PathCode = Annotated[int, Meta(ge=0, le=2)]  # TransferPath.code

MachineFields = dict[str, str | int | bool | None]  # of dgkit.report.Machine


class Value(Struct, frozen=True, array_like=True, gc=False):
    """Base of all tasks and results."""


class Moved(Value, frozen=True, kw_only=True):
    """Result of a copy. Timestamps are those of its last DMA; those named `first_`, of its first.

    `read_ns` and `write_ns` are the summed latencies of its DMA reads and of its DMA writes, over
    `chunks` chunks. The clock is that of the machine that moves the bytes.
    """

    size: Size
    op: TransferOp
    path: PathCode
    submit_ns: int
    post_ns: int
    complete_ns: int
    read_ns: int
    write_ns: int
    chunks: int
    first_submit_ns: int
    first_post_ns: int
    first_complete_ns: int


class Digested(Value, frozen=True, kw_only=True):
    """SHA-256 in hex digits, and the summed latency of the DMA reads."""

    sha256: str
    dma_ns: int


class LatencyTask(Value, frozen=True, kw_only=True):
    """Time `samples` transfers of `size` bytes at `offset` of a region."""

    offset: Size
    size: Size
    op: TransferOp
    samples: Annotated[int, Meta(ge=1, le=MAX_SAMPLES)]
    path: PathCode


class RateTask(Value, frozen=True, kw_only=True):
    """Keep `window` transfers of `size` bytes in flight for `seconds`."""

    size: Size
    op: TransferOp
    window: Annotated[int, Meta(ge=1, le=65536)]
    seconds: Annotated[float, Meta(gt=0, le=3600)]
    path: PathCode


class WatchTask(Value, frozen=True, kw_only=True):
    """Time `samples` transfers every `every_s` seconds; the other fields as in LatencyTask."""

    offset: Size
    size: Positive
    op: TransferOp
    samples: Annotated[int, Meta(ge=1, le=MONITOR_SAMPLES)]
    path: PathCode
    every_s: Annotated[float, Meta(ge=EVERY_S[0], le=EVERY_S[1])]


class LatencyResult(Value, frozen=True, kw_only=True):
    """End of a latency measurement, whose samples were passed on in `blocks` blocks.

    The floors are in ns per copy, before and after; 0 if not measured. `sleeps` is how often the
    engine slept during the measurement.
    """

    blocks: Size
    path: str
    floor_before: Size
    floor_after: Size
    machine: MachineFields
    sleeps: int


class RateResult(Value, frozen=True, kw_only=True):
    """Result of a bandwidth measurement; floors and `sleeps` as in LatencyResult."""

    ops: Size
    moved: Size
    elapsed_ns: Positive
    failed: Size
    path: str
    floor_before: Size
    floor_after: Size
    machine: MachineFields
    sleeps: int


class Sampled(Value, frozen=True, kw_only=True):
    """Block of latency samples.

    Attributes:
        number: Counts the blocks of one monitor from 0, so a missing number is a lost block.
        t_ns: Monotonic clock of the measuring process when the block was complete. Python stamps
            it: it places the block on a time axis and is not part of any measured latency.
        provider: Provider that moved the bytes.
        source: "monitor"; "move" or "latency" for the samples of a client's moves and latency
            measurements.
        samples: Latencies in nanoseconds, native-endian u64; `latencies_ns` has them as an array.
        op: "read" or "write"; empty unless `source` is "monitor".
        size: Bytes of each timed transfer; 0 unless `source` is "monitor".
        path: "inline", "worker", or "mixed" if the block has samples of both; empty unless `source`
            is "monitor".
    """

    number: int
    t_ns: int
    provider: str
    source: str
    samples: bytes
    op: str = ""
    size: int = 0
    path: str = ""

    @property
    def latencies_ns(self) -> np.ndarray[Any, Any]:
        """Return the samples as a read-only array of u64."""
        import numpy as np  # imported late: an agent needs none

        return np.frombuffer(self.samples, np.uint64)
