# SPDX-License-Identifier: Apache-2.0
"""All messages and their codec: msgspec structs in MessagePack, one array per message.

A message is an array of its tag, the number of the request, and its fields in the order below,
which tests/unit/approved/messages.txt holds together with VERSION. Tasks and results of the DPU
are arrays within it (dgkit/schema.py). Every field of a request has a bound.

The size of a message is bounded before it is decoded: libzmq drops a connection that sends more
than MAX_REQUEST to an agent, more than MAX_REPLY to a client, or a block of more than MAX_BLOCK.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Union

import msgspec
from msgspec import Meta, Struct

from ..schema import (
    Digested,
    LatencyResult,
    LatencyTask,
    MachineFields,
    Moved,
    Positive,
    RateResult,
    RateTask,
    Sampled,
    Size,
    Value,
    WatchTask,
)  # fmt: skip
from ..sizes import STAGE_BYTES
from ..units import printable

VERSION = 10
MAX_REQUEST = 1 << 16  # bytes
MAX_REPLY = 160 << 10  # bytes
MAX_BLOCK = 40 << 10  # bytes of a published block
TELEMETRY_HWM = 1000  # unread blocks that a subscriber accepts; later ones are lost
MAX_RINGS = 8  # most GPU queues of one client at a time
RING_LOCALS = 8  # regions of a GPU queue's owner; DG_RING_PEERS of native/dgkit.h
MONITORS = 8  # most of one client at a time

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Handle = Positive
Name = Annotated[str, Meta(max_length=256)]
Token = Annotated[bytes, Meta(max_length=768)]  # DG_DESCRIPTOR_MAX of native/dgkit.h


class Message(Struct, array_like=True, gc=False, kw_only=True):
    """Base of all messages. `id` is the number of the request; its reply repeats it.

    Whoever sends the message sets it: the connection, or the agent's loop.
    """

    id: Id = 0


# Messages from an agent to a client.


class Welcome(Message, tag=64, kw_only=True):
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


class Done(Message, tag=65, kw_only=True):
    """Success, without a result."""


class Allocated(Message, tag=66, kw_only=True):
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


class Imported(Message, tag=67, kw_only=True):
    """Reply to Import. `method` is how the agent reaches the bytes: map, vm or ask."""

    region: Handle
    size: Size
    access: Annotated[int, Meta(ge=1, le=3)]
    method: str


class Exported(Message, tag=68, kw_only=True):
    """Reply to Export: a descriptor of at most 768 bytes."""

    token: bytes


class MoveDone(Message, tag=69, kw_only=True):
    """Reply to Move."""

    moved: Moved


class DigestDone(Message, tag=70, kw_only=True):
    """Reply to Digest."""

    digested: Digested


class Progress(Message, tag=71, kw_only=True):
    """Progress of request `id`, before its final reply."""

    done: int
    total: int


class Block(Message, tag=72, kw_only=True):
    """Latency samples of request `id`: u64 nanoseconds in native byte order, numbered from 0."""

    number: int
    samples: bytes


class LatencyDone(Message, tag=73, kw_only=True):
    """Final reply to Latency."""

    result: LatencyResult


class RateDone(Message, tag=74, kw_only=True):
    """Final reply to Rate."""

    result: RateResult


class StatsDone(Message, tag=75, kw_only=True):
    """Reply to Stats: counters by name."""

    counters: dict[str, int]


class Subscribed(Message, tag=76, kw_only=True):
    """Reply to Subscribe: the address of the telemetry socket.

    The samples of this client's moves and latency measurements are published under the number
    `monitor`, which the client must keep secret, or under 0 if the agent shares the telemetry
    of all clients.
    """

    endpoint: str
    monitor: int = 0


class Failure(Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """Fields of a completion in a Failed message."""

    status: int
    op: int
    path: int
    submit_ns: int
    post_ns: int
    complete_ns: int


class OutstandingDone(Message, tag=79, kw_only=True):
    """Reply to Outstanding."""

    numbers: Annotated[list[int], Meta(max_length=1 << 14)]


class RingOpened(Message, tag=80, kw_only=True):
    """Reply to OpenRing: the ids by which kernels name `region` and each of `locals`."""

    ring: Handle
    remote: Annotated[int, Meta(ge=1, lt=2**32)]
    locals: Annotated[list[Annotated[int, Meta(ge=1, lt=2**32)]], Meta(max_length=RING_LOCALS)]


class Fetched(Message, tag=81, kw_only=True):
    """Reply to Fetch: the bytes."""

    data: Annotated[bytes, Meta(max_length=STAGE_BYTES)]


class Failed(Message, tag=127, kw_only=True):
    """An exception: class name, message, errno, and the doctor's check that explains it.

    `errno` is 0 and `check` is "" where they do not apply. `id` is 0 if the error is about a
    message that could not be decoded.
    """

    kind: str
    text: str
    errno: int
    completion: Failure | None
    check: str = ""


class Watching(Message, tag=77, kw_only=True):
    """Reply to Watch: the monitor runs. `machine` has the fields of dgkit.report.Machine."""

    path: str
    machine: MachineFields


class Ended(Message, tag=78, kw_only=True):
    """The monitor of request `id` ended without Cancel, for the reason in `failed`."""

    failed: Failed


Reply = Union[  # noqa: UP007 (evaluated at run time, on Python 3.10 too)
    Welcome, Done, Allocated, Imported, Exported, MoveDone, DigestDone, Progress, Block,
    LatencyDone, RateDone, StatsDone, Subscribed, Watching, Ended, OutstandingDone, RingOpened,
    Fetched, Failed,
]  # fmt: skip


# Messages from a client to an agent.


class Hello(Message, tag=1, kw_only=True):
    """First message of a client, with any `id`. The reply is Welcome or Failed.

    The first three fields keep their positions in all versions of the protocol, so that a version
    mismatch can always be detected.
    """

    reply: ClassVar = Welcome
    version: Annotated[int, Meta(ge=0, le=65535)]
    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    boot: Name
    machine: Name
    package: Name


class Allocate(Message, tag=2, kw_only=True):
    """Allocate and register `size` bytes at the agent.

    `export` requests the region's descriptor in the reply. `place` is the `on` of dgkit.empty():
    host, pinned, gpu, cuda:N, auto. `staging`: see Import.
    """

    reply: ClassVar = Allocated
    size: Size
    access: Annotated[int, Meta(ge=1, le=3)]
    export: bool
    name: Name
    place: Name = "host"
    staging: bool = False


class Import(Message, tag=3, kw_only=True):
    """Import the region of this descriptor at the agent.

    `staging` says that the memory carries the client's data to and from its regions. A client at
    its limit of regions needs it to use them, so two such regions of each client do not count.
    """

    reply: ClassVar = Imported
    token: Token
    staging: bool = False


class Export(Message, tag=4, kw_only=True):
    """Request the descriptor of an allocated region; `access` 0 is the region's own access."""

    reply: ClassVar = Exported
    region: Handle
    access: Annotated[int, Meta(ge=0, le=3)]


class Free(Message, tag=5, kw_only=True):
    """Close a region; wait at most `timeout` seconds for transfers in flight."""

    reply: ClassVar = Done
    region: Handle
    timeout: Annotated[float, Meta(ge=0, le=3600)]


class Move(Message, tag=6, kw_only=True):
    """Copy: the DPU reads `size` bytes of `src` and writes them to `dst`."""

    reply: ClassVar = MoveDone
    src: Handle
    src_offset: Size
    dst: Handle
    dst_offset: Size
    size: Size


class Digest(Message, tag=7, kw_only=True):
    """Hash: the DPU reads the bytes by DMA and computes their SHA-256."""

    reply: ClassVar = DigestDone
    region: Handle
    offset: Size
    size: Size


class Latency(Message, tag=8, kw_only=True):
    """Measure latencies. Replies are Block and Progress messages, then LatencyDone."""

    reply: ClassVar = LatencyDone
    region: Handle
    task: LatencyTask


class Rate(Message, tag=9, kw_only=True):
    """Measure bandwidth. Replies are Progress messages, then RateDone."""

    reply: ClassVar = RateDone
    region: Handle
    task: RateTask


class Cancel(Message, tag=10, kw_only=True):
    """Cancel request `target`, which then fails; the reply to Cancel is always Done.

    Cancelling a Watch ends its monitor; Done is sent once the monitor's resources are released.
    """

    reply: ClassVar = Done
    target: Id


class Stats(Message, tag=11, kw_only=True):
    """Request the agent's counters."""

    reply: ClassVar = StatsDone


class Subscribe(Message, tag=12, kw_only=True):
    """Request the address of the telemetry socket, which the first Subscribe creates."""

    reply: ClassVar = Subscribed


class Bye(Message, tag=13, kw_only=True):
    """Release all resources of this client; Done is sent once they are released."""

    reply: ClassVar = Done


class Outstanding(Message, tag=15, kw_only=True):
    """Request the numbers of this client's earlier requests that are not answered yet.

    Replies to all earlier requests not in that list precede this reply.
    """

    reply: ClassVar = OutstandingDone


class Watch(Message, tag=14, kw_only=True):
    """Monitor: take samples until Cancel.

    The reply is Watching or Failed; Ended follows if the monitor ends before Cancel. Its blocks are
    published on the telemetry socket (Subscribe) under the number `monitor`, which the client draws
    at random and subscribes to before this request.
    """

    reply: ClassVar = Watching
    monitor: Handle
    region: Handle
    task: WatchTask


class OpenRing(Message, tag=16, kw_only=True):
    """Serve a ring that kernels of the client post to.

    `memory` is the descriptor of the ring, `region` the DPU's memory, `locals` the client's
    regions that kernels read and write. `index` is the client's number of the ring. With
    `trace` the ring's memory also has room for time stamps.
    """

    reply: ClassVar = RingOpened
    memory: Token
    region: Handle
    locals: Annotated[list[Handle], Meta(min_length=1, max_length=RING_LOCALS)]
    depth: Annotated[int, Meta(ge=64, le=16384)]
    weak: bool
    index: Annotated[int, Meta(ge=1, lt=2**32)]
    trace: bool


class CloseRing(Message, tag=17, kw_only=True):
    """Close a ring: every kernel's wait ends. Done is sent once the agent no longer uses it."""

    reply: ClassVar = Done
    ring: Handle


class Stage(Message, tag=18, kw_only=True):
    """Store bytes in memory that the client has allocated at the agent, without DMA.

    For a session that runs on neither side: no DMA reaches its memory.
    """

    reply: ClassVar = Done
    region: Handle
    offset: Size
    data: Annotated[bytes, Meta(max_length=STAGE_BYTES)]


class Fetch(Message, tag=19, kw_only=True):
    """Request bytes of memory that the client has allocated at the agent, without DMA."""

    reply: ClassVar = Fetched
    region: Handle
    offset: Size
    size: Annotated[int, Meta(ge=0, le=STAGE_BYTES)]


Request = Union[  # noqa: UP007
    Hello, Allocate, Import, Export, Free, Move, Digest, Latency, Rate, Cancel, Stats, Subscribe,
    Bye, Watch, Outstanding, OpenRing, CloseRing, Stage, Fetch,
]  # fmt: skip


# Messages of the telemetry socket.


class Published(Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """Published block of the monitor with number `monitor`.

    The samples of a client's moves and latency measurements have the number in the reply to
    Subscribe (0 if the agent shares its telemetry).
    """

    monitor: int
    block: Sampled


class Subscription(Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """Message of a subscriber: request the blocks of one monitor.

    The first one of a connection is answered by SUBSCRIBED; all blocks that are published later
    follow. Further ones raise the credit. A subscriber has a connection for each monitor.

    Attributes:
        monitor: Number of the monitor.
        credit: Further blocks that the subscriber accepts. The sum never exceeds TELEMETRY_HWM.
    """

    monitor: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    credit: Annotated[int, Meta(ge=1, le=TELEMETRY_HWM)] = TELEMETRY_HWM


SUBSCRIBED = b""  # message to a subscriber
decode_published = msgspec.msgpack.Decoder(Published).decode
decode_subscription = msgspec.msgpack.Decoder(Subscription).decode


# Messages between the processes of one user.


class Start(Struct, frozen=True, kw_only=True):
    """Configuration of a software DPU, from the process that starts it.

    Both it and the reply travel over a socket pair, whose end-of-file ends the software DPU
    together with the session.
    """

    provider: str
    rules: list[dict[str, object]]
    max_memory: int
    gpu: int = 0
    pci: str | None = None
    rdma: str | None = None


class Started(Struct, frozen=True, kw_only=True):
    """Reply of a software DPU: the address where it listens, or the exception that prevented it."""

    endpoint: str
    failed: Failed | None


class RingOffer(Struct, frozen=True, kw_only=True):
    """A testbed's GPU queue: descriptors of its ring and of the memory of its kernels.

    doorbell: of a queue pair, "" for dgkit's own ring. starts: addresses of the ring and of the
    memory, as its kernels see them. port: of the host guest, for the answer.
    """

    ring: Token
    locals: Annotated[list[Token], Meta(min_length=1, max_length=RING_LOCALS)]
    depth: Annotated[int, Meta(ge=1, le=1 << 20)]
    trace: bool
    doorbell: Name
    starts: Annotated[list[Id], Meta(max_length=1 + RING_LOCALS)]
    port: Annotated[int, Meta(ge=1, lt=1 << 16)]


class RingAnswer(Struct, frozen=True, kw_only=True):
    """The other guest serves that ring: ids or keys by which its kernels name the regions.

    Of a queue pair also its number, and address and size of the remote region.
    """

    ring: Token
    remote: Annotated[int, Meta(ge=0, lt=2**32)]
    locals: Annotated[list[Annotated[int, Meta(ge=0, lt=2**32)]], Meta(max_length=RING_LOCALS)]
    number: Annotated[int, Meta(ge=0, lt=2**24)] = 0
    address: Id = 0
    size: Id = 0


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # by decode_...()
encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_ring_offer = msgspec.msgpack.Decoder(RingOffer).decode
decode_ring_answer = msgspec.msgpack.Decoder(RingAnswer).decode
decode_started = msgspec.msgpack.Decoder(Started).decode


def number_of(body: bytes, least: int) -> int:
    """Return the number of a request that cannot be decoded, or 0 if it is less than `least`.

    The number follows the kind, a positive fixint, in a fixarray (MessagePack specification).
    """
    if len(body) < 3 or body[0] & 0xF0 != 0x90 or body[1] & 0x80:
        return 0
    number, code = body[2], body[2]
    if 0xCC <= code <= 0xCF:  # uint 8 to uint 64
        width = 1 << (code - 0xCC)
        number = int.from_bytes(body[3 : 3 + width], "big")
    elif code & 0x80:
        return 0
    return number if least <= number < 1 << 63 else 0


WITH_TEXTS = (  # replies that clean() changes
    Welcome, Allocated, Imported, DigestDone, LatencyDone, RateDone, StatsDone, Subscribed,
    Watching,
)  # fmt: skip


def clean(reply: Any) -> Any:
    """Escape the control characters in a reply's texts, in place, and return it.

    A client does not trust the agent.
    """
    for name in reply.__struct_fields__:
        setattr(reply, name, _without_defaults(getattr(reply, name)))
    return reply


def _without_defaults(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _without_defaults(item) for key, item in value.items()}
    if isinstance(value, Value):
        cleaned = {
            name: _without_defaults(getattr(value, name)) for name in value.__struct_fields__
        }
        return msgspec.structs.replace(value, **cleaned)
    return value
