# SPDX-License-Identifier: Apache-2.0
"""Continuous latency monitoring for one client, on a separate thread."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..wire.error_codec import to_wire
from ..wire.messages import Ended, Published, Watch, Watching
from .agent_limits import MONITOR_FDS
from .worker import MonitorEnd

if TYPE_CHECKING:
    from ..dpu.region_ref import RegionRef
    from ..dpu.sampler import Sampler
    from .client import Client
    from .state import AgentState

_SLICE_NS = 50_000_000  # sampling time between two checks for a requested end


class Monitor:
    """Monitor of a client: sends the blocks that a Watch requests, until it is told to end.

    Its thread frees the monitor's resources.
    """

    def __init__(self, state: AgentState, client: Client, request: Watch, ref: RegionRef) -> None:
        self._state, self._client, self._request, self._ref = state, client, request, ref
        self._worker = client.worker("monitor")
        self._end = MonitorEnd(request.region, self._worker)
        self._sampler: Sampler | None = None

    def start(self) -> None:
        """Start the thread, which first replies Watching or Failed.

        Raises:
            LimitReached: The system has no thread left, or the client's key or user has used up its
                file descriptors.
        """
        self._client.allowance.account.charge(descriptors=MONITOR_FDS)
        try:
            self._worker.start()
        except BaseException:
            self._client.allowance.account.release(descriptors=MONITOR_FDS)
            raise
        self._client.monitors[self._request.id] = self._end
        self._state.run_job(self._client, self._worker, self._request, self._open)
        self._worker.submit(self._run)

    def _open(self) -> Watching:
        task = self._request.task
        self._client.allowance.charge_memory(task.size)
        try:
            self._sampler = self._state.service.watch(self._ref, task)
        except BaseException:
            self._client.allowance.release_memory(task.size)
            self._client.monitors.pop(self._request.id, None)  # the client may retry at once
            raise
        return Watching(path=self._sampler.path, machine=self._sampler.machine)

    def _run(self) -> None:
        sampler, error = self._sampler, None
        if sampler is not None:
            try:
                self._sample(sampler)
            except Exception as exc:  # every error is reported to the client
                error = exc
        self._client.monitors.pop(self._request.id, None)
        error = self._end.mark_ended() or error
        if error is not None and sampler is not None:
            ended = Ended(id=self._request.id, failed=to_wire(error, 0))
            self._state.send(self._client, ended)
        self._client.allowance.account.release(descriptors=MONITOR_FDS)
        try:
            self._end.run_callbacks()
        finally:
            self._worker.finish()

    def _sample(self, sampler: Sampler) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(self._client.allowance.release_memory, self._request.task.size)
            undo.callback(sampler.close)
            while not self._end.wait_requested(sampler.wait_s):
                block = sampler.step(_SLICE_NS)
                if block is not None:
                    published = Published(monitor=self._request.monitor, block=block)
                    self._state.send(self._client, published)
