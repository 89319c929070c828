"""Messages from a client to an agent. Every field has a bound.

The first three fields of Hello keep their positions in all protocol versions, so that a version
mismatch can always be detected.
"""

from __future__ import annotations

from typing import Annotated, Union

from msgspec import Meta, Struct

from ..sizes import STAGE_BYTES

VERSION = 9
MAX_SAMPLES = 1_000_000  # most in one latency request
MAX_RINGS = 8  # most GPU queues of one client at a time
RING_LOCALS = 8  # regions of a GPU queue's owner; DG_RING_PEERS of native/dgkit.h
MONITORS = 8  # most of one client at a time
MONITOR_SAMPLES = 4096  # most in one block of a monitor
EVERY_S = (0.01, 60.0)  # bounds of a monitor's period

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=MAX_SAMPLES)]
Handle = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=4096)]
Token = Annotated[bytes, Meta(max_length=768)]  # DG_DESCRIPTOR_MAX of native/dgkit.h
Code = Annotated[int, Meta(ge=0, le=255)]
Seconds = Annotated[float, Meta(gt=0, le=3600)]


class Message(Struct, array_like=True, gc=False):
    """Base of all messages. `id` is the number of the request; its reply repeats it."""

    id: Id


class Hello(Message, tag=1):
    """First message of a client, with any `id`. The reply is Welcome or Failed."""

    version: Annotated[int, Meta(ge=0, le=65535)]
    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    boot: Name
    machine: Name
    package: Name


class Allocate(Message, tag=2):
    """Allocate and register `size` bytes at the agent.

    `export` requests the region's descriptor in the reply. `place` is the `on` of dgkit.empty():
    host, pinned, gpu, cuda:N, auto. `staging`: see Import.
    """

    size: Size
    access: Annotated[int, Meta(ge=1, le=3)]
    export: bool
    name: Name
    place: Name = "host"
    staging: bool = False


class Import(Message, tag=3):
    """Import the region of this descriptor at the agent.

    `staging` says that the memory carries the client's data to and from its regions. A client at
    its limit of regions needs it to use them, so two such regions of each client do not count.
    """

    token: Token
    staging: bool = False


class Export(Message, tag=4):
    """Request the descriptor of an allocated region; `access` 0 is the region's own access."""

    region: Handle
    access: Annotated[int, Meta(ge=0, le=3)]


class Free(Message, tag=5):
    """Close a region; wait at most `timeout` seconds for transfers in flight."""

    region: Handle
    timeout: Annotated[float, Meta(ge=0, le=3600)]


class Move(Message, tag=6):
    """Copy: the DPU reads `size` bytes of `src` and writes them to `dst`."""

    src: Handle
    src_offset: Size
    dst: Handle
    dst_offset: Size
    size: Size


class Digest(Message, tag=7):
    """Hash: the DPU reads the bytes by DMA and computes their SHA-256."""

    region: Handle
    offset: Size
    size: Size


class Latency(Message, tag=8):
    """Time `count` transfers of `size` bytes. Replies are Block messages, then LatencyDone."""

    region: Handle
    offset: Size
    size: Size
    op: Annotated[int, Meta(ge=0, le=1)]
    count: Count
    path: Annotated[int, Meta(ge=0, le=2)]


class Rate(Message, tag=9):
    """Keep `window` transfers of `size` bytes in flight for `seconds`."""

    region: Handle
    size: Size
    op: Annotated[int, Meta(ge=0, le=1)]
    window: Annotated[int, Meta(ge=1, le=65536)]
    seconds: Seconds
    path: Annotated[int, Meta(ge=0, le=2)]


class Cancel(Message, tag=10):
    """Cancel request `target`, which then fails; the reply to Cancel is always Done.

    Cancelling a Watch ends its monitor; Done is sent once the monitor's resources are released.
    """

    target: Id


class Stats(Message, tag=11):
    """Request the agent's counters."""


class Subscribe(Message, tag=12):
    """Request the address of the telemetry socket, which the first Subscribe creates."""


class Bye(Message, tag=13):
    """Release all resources of this client; Done is sent once they are released."""


class Outstanding(Message, tag=15):
    """Request the numbers of this client's earlier requests that are not answered yet.

    Replies to all earlier requests not in that list precede this reply.
    """


class Watch(Message, tag=14):
    """Monitor: take `count` samples every `every_s` seconds, until Cancel.

    The reply is Watching or Failed; Ended follows if the monitor ends before Cancel. Its blocks are
    published on the telemetry socket (Subscribe) under the number `monitor`, which the client draws
    at random and subscribes to before this request.
    """

    monitor: Handle
    region: Handle
    offset: Size
    size: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    op: Annotated[int, Meta(ge=0, le=1)]
    count: Annotated[int, Meta(ge=1, le=MONITOR_SAMPLES)]
    path: Annotated[int, Meta(ge=0, le=2)]
    every_s: Annotated[float, Meta(ge=EVERY_S[0], le=EVERY_S[1])]


class OpenRing(Message, tag=16):
    """Serve a ring that kernels of the client post to.

    `memory` is the descriptor of the ring, `region` the DPU's memory, `locals` the client's
    regions that kernels read and write. `index` is the client's number of the ring. With
    `trace` the ring's memory also has room for time stamps.
    """

    memory: Token
    region: Handle
    locals: Annotated[list[Handle], Meta(min_length=1, max_length=RING_LOCALS)]
    depth: Annotated[int, Meta(ge=64, le=16384)]
    weak: bool
    index: Annotated[int, Meta(ge=1, lt=2**32)]
    trace: bool


class CloseRing(Message, tag=17):
    """Close a ring: every kernel's wait ends. Done is sent once the agent no longer uses it."""

    ring: Handle


class Stage(Message, tag=18):
    """Store bytes in memory that the client has allocated at the agent, without DMA.

    For a session that runs on neither side: no DMA reaches its memory.
    """

    region: Handle
    offset: Size
    data: Annotated[bytes, Meta(max_length=STAGE_BYTES)]


class Fetch(Message, tag=19):
    """Request bytes of memory that the client has allocated at the agent, without DMA."""

    region: Handle
    offset: Size
    size: Annotated[int, Meta(ge=0, le=STAGE_BYTES)]


Request = Union[  # noqa: UP007 (evaluated at run time, on Python 3.10 too)
    Hello,
    Allocate,
    Import,
    Export,
    Free,
    Move,
    Digest,
    Latency,
    Rate,
    Cancel,
    Stats,
    Subscribe,
    Bye,
    Watch,
    Outstanding,
    OpenRing,
    CloseRing,
    Stage,
    Fetch,
]
