"""Messages from an agent to a client."""

from __future__ import annotations

from typing import Annotated, Union

from msgspec import Meta, Struct

from ..sizes import STAGE_BYTES
from .requests import RING_LOCALS, Handle, Message, Size


class Welcome(Message, tag=64):
    """Reply to Hello.

    Requests are numbered from `first_id`, a secret of this connection: requests of any other
    sender are out of range.
    """

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
    emulated: bool = False


class Done(Message, tag=65):
    """Success, without a result."""


class Allocated(Message, tag=66):
    """Reply to Allocate.

    `token` is the descriptor, empty unless requested. `place` is where the bytes are (host, pinned,
    cuda:0); `chosen` is the reason if the agent chose the place, else "". `registration` is
    how an RDMA adapter registered the memory (dgkit.Region), else "".
    """

    region: Handle
    token: bytes
    place: str
    chosen: str
    registration: str = ""


class Imported(Message, tag=67):
    """Reply to Import. `method` is how the agent reaches the bytes: map, vm or ask."""

    region: Handle
    size: Size
    access: Annotated[int, Meta(ge=1, le=3)]
    method: str


class Exported(Message, tag=68):
    """Reply to Export: a descriptor of at most 768 bytes."""

    token: bytes


class Moved(Message, tag=69):
    """Reply to Move.

    The timestamps are those of the last DMA, by the agent's clock; those named `first_` are of
    the first DMA, and are zeros from an agent that does not report them. `read_ns` and
    `write_ns` are the sums over all `chunks` of the latencies of the first and of the second
    DMA of each chunk.
    """

    size: Size
    op: Annotated[int, Meta(ge=0, le=1)]
    path: Annotated[int, Meta(ge=0, le=2)]
    submit_ns: int
    post_ns: int
    complete_ns: int
    read_ns: int
    write_ns: int
    chunks: int
    first_submit_ns: int = 0
    first_post_ns: int = 0
    first_complete_ns: int = 0


class Digested(Message, tag=70):
    """Reply to Digest: hex digits, and the sum of the DMA latencies."""

    sha256: str
    dma_ns: int


class Progress(Message, tag=71):
    """Progress of request `id`, before its final reply."""

    done: int
    total: int


class Block(Message, tag=72):
    """Latency samples of request `id`: u64 nanoseconds in native byte order, numbered from 0."""

    number: int
    samples: bytes


class LatencyDone(Message, tag=73):
    """Final reply to Latency.

    The floors are medians in ns, measured immediately before and after; 0 where there is no floor
    (one CPU). `machine` has the fields of dgkit.report.Machine. `sleeps`: how often the engine
    slept meanwhile.
    """

    blocks: Size
    path: str
    floor_before: Size
    floor_after: Size
    machine: dict[str, str | int | bool | None]
    sleeps: int = 0  # absent in replies of agents that do not count them


class RateDone(Message, tag=74):
    """Final reply to Rate. The floors are medians in ns of one memcpy of the same size.

    `sleeps`: how often the engine slept meanwhile.
    """

    ops: Size
    moved: Size
    elapsed_ns: Handle
    failed: Size
    path: str
    floor_before: Size
    floor_after: Size
    machine: dict[str, str | int | bool | None]
    sleeps: int = 0  # absent in replies of agents that do not count them


class StatsDone(Message, tag=75):
    """Reply to Stats: counters by name."""

    counters: dict[str, int]


class Subscribed(Message, tag=76):
    """Reply to Subscribe: the address of the telemetry socket.

    The samples of this client's moves and latency measurements are published under the number
    `monitor`, which the client must keep secret, or under 0 if the agent shares the telemetry
    of all clients.
    """

    endpoint: str
    monitor: int = 0  # absent in replies of agents that publish every client's samples


class Failure(Struct, array_like=True, frozen=True, gc=False):
    """Fields of a completion in a Failed message."""

    status: int
    op: int
    path: int
    submit_ns: int
    post_ns: int
    complete_ns: int


class OutstandingDone(Message, tag=79):
    """Reply to Outstanding."""

    numbers: Annotated[list[int], Meta(max_length=1 << 14)]


class RingOpened(Message, tag=80):
    """Reply to OpenRing: the ids by which kernels name `region` and each of `locals`."""

    ring: Handle
    remote: Annotated[int, Meta(ge=1, lt=2**32)]
    locals: Annotated[list[Annotated[int, Meta(ge=1, lt=2**32)]], Meta(max_length=RING_LOCALS)]


class Fetched(Message, tag=81):
    """Reply to Fetch: the bytes."""

    data: Annotated[bytes, Meta(max_length=STAGE_BYTES)]


class Failed(Message, tag=127):
    """An exception: class name, message, errno, and the doctor's check that explains it.

    `errno` is 0 and `check` is "" where they do not apply. `id` is 0 if the error is about a
    message that could not be decoded.
    """

    kind: str
    text: str
    errno: int
    completion: Failure | None
    check: str = ""  # absent in replies of agents older than dgkit doctor


class Watching(Message, tag=77):
    """Reply to Watch: the monitor runs. `machine` has the fields of dgkit.report.Machine."""

    path: str
    machine: dict[str, str | int | bool | None]


class Ended(Message, tag=78):
    """The monitor of request `id` ended without Cancel, for the reason in `failed`."""

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
    OutstandingDone,
    RingOpened,
    Fetched,
    Failed,
]
