"""Blocks of latency samples as the telemetry socket publishes them."""

from __future__ import annotations

import msgspec
from msgspec import Struct


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


encode_sampled = msgspec.msgpack.Encoder().encode
decode_sampled = msgspec.msgpack.Decoder(Sampled).decode


def topic(monitor: int) -> bytes:
    """Return the prefix to subscribe to for the blocks of one monitor.

    A block is a MessagePack array whose first element is the monitor's number, and no encoded
    number is a prefix of another.
    """
    block = encode_sampled(Sampled(monitor, 0, 0, "", "", b""))
    return block[: 1 + len(encode_sampled(monitor))]
