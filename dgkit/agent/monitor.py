"""Continuous latency monitoring for one client, on a separate thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from ..dpu.values import WatchTask
from ..wire.error_codec import to_wire
from ..wire.messages import Ended, Watch, Watching
from ..wire.telemetry import Sampled
from .agent_limits import MONITOR_FDS

if TYPE_CHECKING:
    from ..dpu.region_ref import RegionRef
    from ..dpu.sampler import Sampler
    from .client import Client
    from .state import AgentState

__all__ = ["Monitor"]

_SLICE_NS = 50_000_000  # sampling time between two looks at end()


class Monitor:
    """Monitor of a client: sends the blocks that a Watch requests, until end().

    Its thread frees its resources.
    """

    def __init__(self, state: AgentState, client: Client, request: Watch, ref: RegionRef) -> None:
        self.region = request.region
        self._state, self._client, self._request, self._ref = state, client, request, ref
        self._worker = client.worker("monitor")
        self._stop = threading.Event()
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._reason: Exception | None = None
        self._on_end: list[Callable[[], None]] = []

    def start(self) -> None:
        """Start the thread, which first replies Watching or Failed.

        Raises:
            LimitReached: The system has no thread left, or the client's key or user has all the
                file descriptors that it may.
        """
        self._client.allowance.account.take(descriptors=MONITOR_FDS)
        try:
            self._worker.start()
        except BaseException:
            self._client.allowance.account.give(descriptors=MONITOR_FDS)
            raise
        self._client.monitors[self._request.id] = self
        self._state.run_job(self._client, self._worker, self._request, self._open)
        self._worker.submit(self._run)

    def end(
        self, *, reason: Exception | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Ask the thread to end; return at once.

        Args:
            reason: Error that the client receives as the reason.
            on_end: Called once everything is freed.
        """
        with self._lock:
            self._reason = self._reason or reason
            if on_end is not None and not self._ended:
                self._on_end.append(on_end)
                on_end = None
        self._stop.set()
        if on_end is not None:
            on_end()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return False if it has not within `timeout` seconds."""
        return self._worker.join(timeout)

    def _open(self) -> Watching:
        size = self._request.size
        self._client.allowance.take_memory(size)
        try:
            task = WatchTask(*astuple(self._request)[3:])
            self._sampler = self._state.service.watch(self._ref, task)
        except BaseException:
            self._client.allowance.give_memory(size)
            self._client.monitors.pop(self._request.id, None)  # the client may retry at once
            raise
        return Watching(self._request.id, self._sampler.path, self._sampler.machine)

    def _run(self) -> None:
        sampler, error = self._sampler, None
        if sampler is not None:
            try:
                self._sample(sampler)
            except Exception as exc:  # every error is the client's to see
                error = exc
        self._client.monitors.pop(self._request.id, None)
        with self._lock:
            self._ended, error = True, self._reason or error
        if error is not None and sampler is not None:
            self._state.send(self._client, Ended(self._request.id, to_wire(error, 0)))
        self._client.allowance.account.give(descriptors=MONITOR_FDS)
        try:
            for on_end in self._on_end:
                on_end()
        finally:
            self._worker.finish()

    def _sample(self, sampler: Sampler) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(self._client.allowance.give_memory, self._request.size)
            undo.callback(sampler.close)
            while not self._stop.wait(sampler.wait_s):
                block = sampler.step(_SLICE_NS)
                if block is not None:
                    self._state.send(self._client, Sampled(self._request.monitor, *block))
