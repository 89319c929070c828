"""Latency samples for plots: numbered blocks on a PUB socket, so that a gap is seen."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import zmq

__all__ = ["Sampled", "Telemetry", "decode_sampled", "topic"]

_MAX_SAMPLES = 4096  # of one block
_EVERY_NS = 50_000_000  # 20 blocks a second are as many as a plot can draw


class Sampled(Struct, array_like=True, frozen=True, gc=False):
    """One published block. `samples` are native u64 nanoseconds, the last of them taken at `t_ns`
    of the publisher's monotonic clock. `number` counts the blocks of one `monitor`: one that is
    missing was lost. `monitor` 0 has what others asked for: its `source` is "move" or "latency",
    and `size` is 0. A monitor's own say what was timed: `source` "monitor", `op` of `size` bytes by
    `path`, or "mixed" if by both. `t_ns` is stamped by Python once the block is whole:
    it says when the block came about, and is no part of a figure.
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


_encode = msgspec.msgpack.Encoder().encode
decode_sampled = msgspec.msgpack.Decoder(Sampled).decode


def topic(monitor: int) -> bytes:
    """What to subscribe to for the blocks of one monitor alone: how each of them begins.

    They are MessagePack arrays with the monitor first, and no number begins as another one does.
    """
    block = _encode(Sampled(monitor, 0, 0, "", "", b""))
    return block[: 1 + len(_encode(monitor))]


class Telemetry:
    """Gathers samples and publishes them. One thread uses it."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, provider: str) -> None:
        self.endpoint = endpoint
        self._socket = socket
        self._provider = provider
        self._number = 0
        self._samples: array[int] = array("Q")
        self._sent_ns = time.monotonic_ns()

    @property
    def waiting(self) -> bool:
        """There are samples that were not published yet."""
        return bool(self._samples)

    def add(self, latency_ns: int) -> None:
        """One transfer's latency."""
        self._samples.append(latency_ns)
        self.flush()

    def flush(self) -> None:
        """Publishes if there is enough, or it has waited long enough."""
        late = time.monotonic_ns() - self._sent_ns > _EVERY_NS
        if self._samples and (late or len(self._samples) >= _MAX_SAMPLES):
            self.publish("move", self._samples.tobytes())
            self._samples = array("Q")

    def publish(self, source: str, samples: bytes) -> None:
        """One block; PUB drops it for a subscriber that cannot keep up."""
        self._sent_ns = time.monotonic_ns()
        block = Sampled(0, self._number, self._sent_ns, self._provider, source, samples)
        self._number += 1
        self.send(block)

    def send(self, block: Sampled) -> None:
        """A block of a monitor, which numbers its own."""
        self._socket.send(_encode(block))
