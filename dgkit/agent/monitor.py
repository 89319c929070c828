"""A client's monitor: samples every so often, in a lane of its own, until somebody ends it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..dpu.sampler import Sampler
from ..wire.error_codec import to_wire
from ..wire.messages import Ended, Watch, Watching
from .worker import Lane

if TYPE_CHECKING:
    from .client import Client, Held
    from .server import Agent

__all__ = ["Monitor"]

_SLICE_NS = 50_000_000  # how long it samples before it looks whether it is to end


class Monitor:
    """Made and started by the loop; what it has is freed by its own thread."""

    def __init__(self, agent: Agent, client: Client, request: Watch, held: Held) -> None:
        self.region = request.region
        self._agent, self._client, self._request, self._held = agent, client, request, held
        self._lane = Lane(f"dgkit-monitor-{client.caller.pid}")
        self._stop = threading.Event()
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()
        self._over = False
        self._why: Exception | None = None
        self._tell: list[Callable[[], None]] = []

    def start(self) -> None:
        """Replies Watching or Failed first, from the lane."""
        self._client.monitors[self._request.id] = self
        self._agent.job(self._client, self._lane, self._request, self._open)
        self._lane.submit(self._run)

    def end(self, *, why: Exception | None = None, told: Callable[[], None] | None = None) -> None:
        """Returns at once. `told` is called when all is freed; the client hears `why`."""
        with self._lock:
            self._why = self._why or why
            if told is not None and not self._over:
                self._tell.append(told)
                told = None
        self._stop.set()
        if told is not None:
            told()

    def join(self, timeout: float) -> bool:
        """Waits for its end; False when it has not come within `timeout` seconds."""
        return self._lane.join(timeout)

    def _open(self) -> Watching:
        size = self._request.size
        self._agent.limit.take(size)
        try:
            self._sampler = Sampler(self._agent.device, self._held, self._request)
        except BaseException:
            self._agent.limit.give(size)
            self._client.monitors.pop(self._request.id, None)  # the client may ask again at once
            raise
        return Watching(self._request.id, self._sampler.path, self._sampler.machine)

    def _run(self) -> None:
        sampler, error = self._sampler, None
        if sampler is not None:
            try:
                self._work(sampler)
            except Exception as exc:  # the client gets it, whatever it is
                error = exc
        self._client.monitors.pop(self._request.id, None)
        with self._lock:
            self._over, error = True, self._why or error
        if error is not None and sampler is not None:
            self._agent.send(self._client, Ended(self._request.id, to_wire(error, 0)))
        for told in self._tell:
            told()
        self._lane.finish()

    def _work(self, sampler: Sampler) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(self._agent.limit.give, self._request.size)
            undo.callback(sampler.close)
            while not self._stop.wait(sampler.wait_s):
                block = sampler.step(_SLICE_NS)
                if block is not None:
                    self._agent.send(self._client, block)
