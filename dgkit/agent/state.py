# SPDX-License-Identifier: Apache-2.0
"""State of an agent that its loop, handlers, monitors and handshake share."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..wire.error_codec import to_wire
from .account import Account, MemoryLimit
from .agent_limits import Limits
from .client import COUNTERS
from .telemetry_publisher import Telemetry

if TYPE_CHECKING:
    from ..dpu.service import DpuService
    from ..schema import Moved
    from ..wire.listener import Caller, Listener
    from ..wire.wakeup import Wakeup
    from .client import Client
    from .worker import SerialWorker

TELEMETRY_MS = 50  # how often the loop wakes to publish
_log = logging.getLogger("dgkit.agent")


class AgentState:
    """An agent's device, clients, limits and counters, and its outbox. The loop owns it.

    Only send() and report() may be called from another thread.

    Attributes:
        service: The DPU. The loop itself runs small copies.
        shared_telemetry: Whether a client sees the samples and totals of all clients.
        outbox: Replies of workers and blocks of monitors, which the loop sends.
        wakeup: Wakes the loop for the outbox; None before the loop runs.
    """

    def __init__(
        self,
        role: str,
        listener: Listener,
        service: DpuService,
        *,
        shared_telemetry: bool = False,
        limits: Limits,
    ) -> None:
        self.role = role
        self.listener = listener
        self.service = service
        self.device = service.device
        self.memory_limit = MemoryLimit(limits.memory)
        self.limits = limits
        self._accounts: dict[str, Account] = {}
        self.shared_telemetry = shared_telemetry
        self.telemetry: Telemetry | None = None
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._logged: set[tuple[str, type[Exception]]] = set()
        self.started_ns = time.monotonic_ns()
        self.clients: dict[bytes, Client] = {}
        self.outbox: deque[tuple[Client, Any]] = deque()
        self.wakeup: Wakeup | None = None

    def send(self, client: Client, message: Any) -> None:
        """Queue a message to a client for the loop, and wake it. Thread-safe."""
        self.outbox.append((client, message))
        if self.wakeup is not None:
            self.wakeup.wake()

    def report(self, place: str, exc: Exception) -> None:
        """Count an exception that does not end the agent; log the first of each class and place.

        Repeated exceptions are not logged, so that a peer cannot fill the log. Thread-safe.

        Args:
            place: What failed, for the log.
        """
        self.counters["internal_errors"] += 1
        if (place, type(exc)) not in self._logged:
            self._logged.add((place, type(exc)))
            failed = to_wire(exc, 0)
            _log.warning("dgkit agent: %s failed: %s: %r", place, type(exc).__name__, failed.text)

    def account(self, caller: Caller) -> Account:
        """Return the account of the key or user of a connection, with its current quota."""
        quota = self.limits.quota(self.listener.keys_allowed if caller.key else 0)
        account = self._accounts.setdefault(caller.owner, Account(caller.owner, quota))
        account.quota = quota
        return account

    def is_refused(self, owner: str, publisher: bool) -> bool:
        """Return whether connections of a key or user are refused, since it flooded the agent."""
        account = self._accounts.get(owner)
        return account is not None and account.penalized and (publisher or account.refuses_silently)

    def penalize_frequent(self) -> None:
        """Penalize the keys whose latest clients came in quick succession."""
        for owner, account in self._accounts.items():
            if owner.startswith("key ") and account.connects_often and not account.penalized:
                account.penalize()

    def count(self, client: Client, name: str, number: int = 1) -> None:
        """Add to a counter of the agent and of a client."""
        self.counters[name] += number
        client.counters[name] += number

    def count_move(self, client: Client, moved: Moved) -> None:
        """Count a successful Move; called after its reply, so that the client does not wait."""
        for counters in (self.counters, client.counters):
            counters["moves"] += 1
            counters["bytes"] += moved.size

    def run_job(
        self, client: Client, worker: SerialWorker, request: Any, work: Callable[[], Any]
    ) -> None:
        """Run `work` in a worker of the client, and send its result or error as the reply."""
        self.count(client, "jobs")

        def job() -> None:
            try:
                reply = work()
                reply.id = request.id
            except Exception as exc:  # every error is reported to the client
                reply = to_wire(exc, request.id)
            worker.job_finished()
            self.send(client, reply)

        client.active.add(request.id)
        try:
            worker.submit(job)
        except Exception:
            client.active.discard(request.id)
            raise

    def start_telemetry(self) -> Telemetry:
        """Return the publisher of samples; the first call opens it."""
        if self.telemetry is None:
            self.limits.check_descriptors()
            self.telemetry = Telemetry(
                self.listener, self.device.provider, self.account, shared=self.shared_telemetry
            )
            self.listener.router.rcvtimeo = TELEMETRY_MS
            if self.wakeup is not None:
                self.wakeup.watch(self.telemetry.fileno())
        return self.telemetry
