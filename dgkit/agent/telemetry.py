"""Publisher of latency samples: numbered blocks on a PUB socket, so that a gap is detected."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from ..wire.telemetry import Sampled, encode_sampled

if TYPE_CHECKING:
    import zmq

__all__ = ["Telemetry"]

_MAX_SAMPLES = 4096  # of one block
_INTERVAL_NS = 50_000_000  # 20 blocks a second: as many as a plot can draw


class Telemetry:
    """Collects the samples of moves and publishes them in blocks. Not thread-safe."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, provider: str) -> None:
        self.endpoint = endpoint
        self._socket = socket
        self._provider = provider
        self._number = 0
        self._samples: array[int] = array("Q")
        self._sent_ns = time.monotonic_ns()

    def add(self, latency_ns: int) -> None:
        """Record the latency of one transfer."""
        self._samples.append(latency_ns)
        self.flush()

    def flush(self) -> None:
        """Publish the recorded samples if they fill a block or have waited long enough."""
        late = time.monotonic_ns() - self._sent_ns > _INTERVAL_NS
        if self._samples and (late or len(self._samples) >= _MAX_SAMPLES):
            self.publish("move", self._samples.tobytes())
            self._samples = array("Q")

    def publish(self, source: str, samples: bytes) -> None:
        """Publish one block; the PUB socket drops it for a subscriber that cannot keep up."""
        self._sent_ns = time.monotonic_ns()
        block = Sampled(0, self._number, self._sent_ns, self._provider, source, samples)
        self._number += 1
        self.send(block)

    def send(self, block: Sampled) -> None:
        """Publish a monitor's block, which the monitor has numbered."""
        self._socket.send(encode_sampled(block))
