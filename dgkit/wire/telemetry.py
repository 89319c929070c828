"""Messages of the telemetry socket: subscriptions, and blocks of latency samples."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

TELEMETRY_HWM = 1000  # unread blocks that a subscriber accepts; later ones are lost


class Sampled(Struct, array_like=True, frozen=True, gc=False):
    """Published block of latency samples.

    Attributes:
        monitor: Number of the monitor that took the samples. Samples of moves and of latency
            measurements have the number in the reply to Subscribe (0 if the agent shares its
            telemetry); their `source` is "move" or "latency" and their `size` is 0.
        number: Counts the blocks of one monitor from 0, so a missing number is a lost block.
        t_ns: Publisher's monotonic clock when the block was complete. Python stamps it: it places
            the block on a time axis and is not part of any measured latency.
        provider: Provider that moved the bytes.
        source: "monitor", "move" or "latency".
        samples: Latencies in nanoseconds, native-endian u64.
        op: "read" or "write"; empty unless `source` is "monitor".
        size: Bytes of each timed transfer.
        path: "inline", "worker", or "mixed" if the block has samples of both.
    """

    monitor: int
    number: int
    t_ns: int
    provider: str
    source: str
    samples: bytes
    op: str = ""
    size: int = 0
    path: str = ""


class Subscription(Struct, array_like=True, frozen=True, gc=False):
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
decode_sampled = msgspec.msgpack.Decoder(Sampled).decode
decode_subscription = msgspec.msgpack.Decoder(Subscription).decode
