"""Where a monitor's samples come from: an agent publishes them, or this process takes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..agent.telemetry import Sampled, decode_sampled, topic
from ..dpu.sampler import Sampler
from ..errors import PeerError, PeerTimeout
from ..report import Machine
from ..wire.messages import Cancel, Subscribe, Watch

if TYPE_CHECKING:
    from ..wire.connection import Connection, Pending
    from .local_dpu import LocalDpu
    from .region import SessionRegion

__all__ = ["AgentSource", "LocalSource", "Source"]

_BUDGET_NS = 10_000_000  # of one look, where this process measures


class Source(Protocol):
    """`ended` is why it ended by itself, if it did."""

    path: str
    machine: Machine
    ended: Exception | None

    def take(self) -> list[Sampled]:
        """The blocks that came since the last look. PeerTimeout: the agent's process is stopped."""

    def stop(self) -> None:
        """Lets go of what is here; nothing is taken after it."""

    def free(self) -> None:
        """Lets go of what is at the agent; it may wait for it."""


class LocalSource:
    """This process is the DPU: it takes the samples itself, when they are due and it is asked."""

    def __init__(self, dpu: LocalDpu, region: SessionRegion, fields: Iterable[Any]) -> None:
        self.ended: Exception | None = None
        request = Watch(0, 1, 1, *fields)
        self._sampler = Sampler(dpu.device, dpu.held(region), request)
        self.path = self._sampler.path
        self.machine = Machine(**self._sampler.machine)  # type: ignore[arg-type]

    def take(self) -> list[Sampled]:
        """At most one, when it is due and whole; it measures for some 10 ms."""
        if self._sampler.wait_s:
            return []
        try:
            block = self._sampler.step(_BUDGET_NS)
        except Exception as exc:
            self.ended = exc
            return []
        return [block] if block is not None else []

    def stop(self) -> None:
        """Frees all."""
        self._sampler.close()

    def free(self) -> None:
        """The agent has no part in it."""


class AgentSource:
    """The agent measures and publishes; a feed of its own has this monitor's blocks alone."""

    def __init__(
        self, link: Connection, region: SessionRegion, fields: Iterable[Any], timeout: float
    ) -> None:
        self.ended: Exception | None = None
        self._link, self._timeout = link, timeout
        self._stopped = link.liveness.stop_check()
        number = int.from_bytes(os.urandom(7), "little") + 1
        endpoint = link.ask(Subscribe, timeout=timeout).endpoint
        self._feed = link.subscriptions.subscribe(endpoint, topic(number))
        self._pending: Pending | None = None
        try:
            self._feed.wait_connected(timeout)
            request = (number, region.handle, *fields)
            self._pending = link.post(Watch, *request, then=self._begin)
            if not link.wait(self._pending, timeout):
                raise PeerTimeout(f"the agent did not begin to monitor within {timeout} s")
            watching = self._pending.result()
        except BaseException:  # Ctrl-C, too
            self.stop()
            self._cancel()
            raise
        self.path: str = watching.path
        self.machine = Machine(**watching.machine)

    def _begin(self, pending: Pending) -> None:
        if pending.error is None:
            self._link.subscriptions.on_end[pending.number] = self._end

    def _end(self, error: Exception) -> None:
        self.ended = error

    def take(self) -> list[Sampled]:
        """What the feed has; where that is nothing, a look at how the agent is."""
        self._glance()
        try:
            blocks = [decode_sampled(body) for body in self._feed.take()]
        except msgspec.DecodeError as exc:
            self.ended = PeerError(f"the agent published what is no block of samples: {exc}")
            return []
        if not blocks and self._link.dead is None:
            self._stopped()
        return blocks

    def _glance(self) -> None:
        """Takes in the news, unless another thread is at it."""
        if self._link.lock.acquire(blocking=False):
            try:
                self._link.pump()
            finally:
                self._link.lock.release()

    def stop(self) -> None:
        """Closes the feed."""
        self._link.subscriptions.unsubscribe(self._feed)

    def _cancel(self) -> Pending | None:
        if self._pending is None or self._link.dead is not None:
            return None
        self._link.subscriptions.on_end.pop(self._pending.number, None)
        with contextlib.suppress(PeerError):
            return self._link.post(Cancel, self._pending.number)
        return None

    def free(self) -> None:
        """Waits until the agent has freed the queue and the memory; an agent that is gone or stuck
        frees them without being asked."""
        cancel = self._cancel()
        if cancel is not None:
            with contextlib.suppress(PeerError):
                self._link.wait(cancel, self._timeout)
