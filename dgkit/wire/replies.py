"""What an agent answers."""

from __future__ import annotations

from typing import Union

from msgspec import Struct

from .requests import Message

__all__ = [
    "Allocated",
    "Block",
    "Digested",
    "Done",
    "Ended",
    "Exported",
    "Failed",
    "Failure",
    "Imported",
    "LatencyDone",
    "Moved",
    "Progress",
    "RateDone",
    "Reply",
    "StatsDone",
    "Subscribed",
    "Watching",
    "Welcome",
]


class Welcome(Message, tag=64):
    """The agent's answer to Hello. Requests are numbered from `first_id` on: only a client that
    got this message, over the connection it came by, knows where to start."""

    version: int
    first_id: int
    role: str
    provider: str
    why: dict[str, str]
    pid: int
    boot: str
    machine: str
    cpus: int
    max_memory: int
    max_size: int
    inline_max: int
    spinning: bool
    engine: str
    package: str


class Done(Message, tag=65):
    """It is done; nothing to tell."""


class Allocated(Message, tag=66):
    """`token` is empty unless the request asked for it. `place` is where the bytes are: host,
    pinned, cuda:0; `chosen` says why there, if the agent was to choose."""

    region: int
    token: bytes
    place: str
    chosen: str


class Imported(Message, tag=67):
    """`method` is how bytes get there: map, vm or ask."""

    region: int
    size: int
    access: int
    method: str


class Exported(Message, tag=68):
    """A descriptor, at most 768 bytes."""

    token: bytes


class Moved(Message, tag=69):
    """The stamps are those of the last DMA of the request, on the agent's clock. `read_ns` and
    `write_ns` add up the latencies of the first and of the second DMA over all `chunks`."""

    size: int
    op: int
    path: int
    submit_ns: int
    post_ns: int
    complete_ns: int
    read_ns: int
    write_ns: int
    chunks: int


class Digested(Message, tag=70):
    """Hex digits, and the sum of the DMA latencies."""

    sha256: str
    dma_ns: int


class Progress(Message, tag=71):
    """How far request `id` is; more follows."""

    done: int
    total: int


class Block(Message, tag=72):
    """Latency samples of request `id`: native u64 nanoseconds, blocks numbered from 0."""

    number: int
    samples: bytes


class LatencyDone(Message, tag=73):
    """The end of a latency run; the floors are medians in ns, right before and right after it, or
    0 where there is none (one CPU). `machine` has the fields of dgkit.report.Machine."""

    blocks: int
    path: str
    floor_before: int
    floor_after: int
    machine: dict[str, str | int | bool | None]


class RateDone(Message, tag=74):
    """The end of a rate run; floors are medians in ns of one memcpy of the same size."""

    ops: int
    moved: int
    elapsed_ns: int
    failed: int
    path: str
    floor_before: int
    floor_after: int
    machine: dict[str, str | int | bool | None]


class StatsDone(Message, tag=75):
    """Counters by name."""

    counters: dict[str, int]


class Subscribed(Message, tag=76):
    """Where telemetry is published."""

    endpoint: str


class Failure(Struct, array_like=True, frozen=True, gc=False):
    """The part of a completion that an error carries."""

    status: int
    op: int
    path: int
    submit_ns: int
    post_ns: int
    complete_ns: int


class Failed(Message, tag=127):
    """An exception: its class by name, its words, its errno and the doctor's check that explains it
    if it has them. With `id` 0 it is about a message that could not be read."""

    kind: str
    text: str
    errno: int
    completion: Failure | None
    check: str = ""  # in no agent's answer before dgkit doctor


class Watching(Message, tag=77):
    """The monitor of request `id` runs. `machine` has the fields of dgkit.report.Machine."""

    path: str
    machine: dict[str, str | int | bool | None]


class Ended(Message, tag=78):
    """The monitor of request `id` ended by itself, and why."""

    failed: Failed


Reply = Union[  # noqa: UP007
    Welcome,
    Done,
    Allocated,
    Imported,
    Exported,
    Moved,
    Digested,
    Progress,
    Block,
    LatencyDone,
    RateDone,
    StatsDone,
    Subscribed,
    Watching,
    Ended,
    Failed,
]
