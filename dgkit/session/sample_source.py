# SPDX-License-Identifier: Apache-2.0
"""Sources of a monitor's samples: an agent's telemetry, or a sampler in this process."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

from ..errors import PeerError, PeerLost
from ..wire.creation import Creation
from ..wire.messages import UNREADABLE, Cancel, Subscribe, Watch, decode_published
from .describe import machine_of

if TYPE_CHECKING:
    from ..dpu.sampler import Sampler
    from ..report import Machine
    from ..schema import Sampled, WatchTask
    from ..wire.connection import Connection
    from ..wire.pending import Pending

_BUDGET_NS = 10_000_000  # duration of one take() where this process measures


class SampleSource(Protocol):
    """Source of blocks of samples.

    Attributes:
        path: Path of the first transfer, which is not a sample: `inline` or `worker`.
        machine: Machine that takes the samples.
        buffered: Blocks are also taken between two calls of take().
    """

    buffered: bool
    path: str
    machine: Machine

    @property
    def ended(self) -> Exception | None:
        """Return the error that ended the source, or None."""

    def take(self) -> list[Sampled]:
        """Return the blocks that came since the last call, without waiting.

        Raises:
            PeerTimeout: The agent's process is stopped.
        """

    def stop(self) -> None:
        """Free this process's resources; take() must not be called again."""

    def free(self) -> None:
        """Free the agent's resources; may wait for the agent."""


class LocalSource:
    """Sampler in this process: take() measures when a block is due."""

    buffered = False

    def __init__(self, sampler: Sampler) -> None:
        self.ended: Exception | None = None
        self._sampler = sampler
        self.path = sampler.path
        self.machine = machine_of(sampler.machine)

    def take(self) -> list[Sampled]:
        """Return the block that is due, once it is complete; measure for about 10 ms."""
        if self._sampler.wait_s:
            return []
        try:
            block = self._sampler.step(_BUDGET_NS)
        except Exception as exc:
            self.ended = exc
            return []
        return [block] if block is not None else []

    def stop(self) -> None:
        """Free everything."""
        self._sampler.close()

    def free(self) -> None:
        """Do nothing: the agent has no resources of this source."""


class RemoteSource:
    """Subscription to the blocks of one monitor at an agent."""

    buffered = True

    def __init__(self, link: Connection, handle: int, task: WatchTask, timeout: float) -> None:
        self._errors: list[Exception] = []
        self._link, self._timeout = link, timeout
        self._check_running = link.peer_state.stop_check()
        self._creation = Creation(link)
        self._creation.then = self._on_reply
        number = int.from_bytes(os.urandom(7), "little") + 1
        endpoint = link.ask(Subscribe(), timeout=timeout).endpoint
        self._subscriber = link.subscriptions.subscribe(endpoint, number)
        try:
            self._subscriber.wait_subscribed(timeout)
            watch = Watch(monitor=number, region=handle, task=task)
            watching = link.ask(watch, timeout=timeout, pending=self._creation)
            self.path: str = watching.path
            self.machine = machine_of(watching.machine)
        except BaseException:
            self.stop()
            raise

    def _on_reply(self, pending: Pending) -> None:
        if pending.error is None:  # without a reference to this object, which may be forgotten
            self._link.subscriptions.on_end[pending.number] = self._errors.append

    @property
    def ended(self) -> Exception | None:
        """Return the error that ended the monitor, or None."""
        return self._errors[0] if self._errors else None

    def take(self) -> list[Sampled]:
        """Return the blocks that have arrived; if there are none, check the agent's process."""
        self._pump()
        try:
            blocks = [decode_published(body).block for body in self._subscriber.take()]
        except PeerLost:  # before the session's own connection, which knows the agent's process
            self._errors.append(self._link.peer_state.lost())
            return []
        except PeerError as exc:
            self._errors.append(exc)
            return []
        except UNREADABLE as exc:
            error = PeerError(f"the agent published an invalid block of samples: {exc}")
            self._errors.append(error)
            return []
        if not blocks and self._link.dead is None:
            self._check_running()
        return blocks

    def _pump(self) -> None:
        """Handle the messages that have arrived, unless another thread is doing so."""
        if self._link.lock.acquire(blocking=False):
            try:
                self._link.pump()
            finally:
                self._link.lock.release()

    def stop(self) -> None:
        """Close the subscription."""
        self._link.subscriptions.unsubscribe(self._subscriber)

    def free(self) -> None:
        """Cancel the monitor and wait until the agent has freed its queue and memory. Idempotent.

        An agent that is gone or stuck frees them by itself.
        """
        number = self._creation.number
        self._link.subscriptions.on_end.pop(number, None)
        if self._link.dead is None:
            with contextlib.suppress(PeerError):
                self._creation.end(Cancel(target=number), timeout=self._timeout)
