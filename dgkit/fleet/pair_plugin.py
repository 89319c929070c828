# SPDX-License-Identifier: Apache-2.0
"""The worker's side of a pair: a session that lives as long as the worker."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from .. import _version
from ..errors import ClosedError, PeerError
from ..types import DEFAULT_PROVIDER
from ..wire.host_id import boot_id, host_name

if TYPE_CHECKING:
    from distributed import Worker

    from ..session import Session


class PairPlugin(WorkerPlugin):  # type: ignore[misc]
    """Dask plugin that opens a worker's session: with its agent, or with a software DPU.

    Args:
        agents: Addresses of agents, by the worker's name or host.
        provider: Provider of the software DPU, or of the worker if it is the DPU.
        keys: Name of the key pair on the worker's machine, for tcp://; the keys stay there.
    """

    idempotent = True  # a second Fleet with the same arguments uses the same sessions

    def __init__(
        self,
        agents: Mapping[str, str] | None = None,
        provider: str = DEFAULT_PROVIDER,
        keys: str | None = None,
    ) -> None:
        self.agents = dict(agents or {})
        self.provider = provider
        self.keys = keys
        fields = [type(self).__qualname__, sorted(self.agents.items()), provider, keys]
        self.name = f"dgkit-{hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:12]}"

    async def setup(self, worker: Worker) -> None:
        """Open the session; store a failure for describe()."""
        self._worker_name = str(worker.name)
        self._worker_address = str(worker.address)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._error = ""
        await worker.loop.run_in_executor(None, self._try_to_open)

    async def teardown(self, worker: Worker) -> None:
        """Close the session, which ends its software DPU."""
        await worker.loop.run_in_executor(None, self._close)

    @property
    def agent(self) -> str:
        """Address of this worker's agent; "" if it starts a software DPU."""
        return self.agents.get(self._worker_name) or self.agents.get(host_name()) or ""

    def open_session(self) -> Session:
        """Open a session with this worker's agent, or with a software DPU."""
        return self.connect(self.agent)

    def connect(self, agent: str) -> Session:
        """Open a session with an agent; "" starts a software DPU."""
        from ..session import connect

        return connect(agent or None, provider=self.provider, keys=self.keys)

    def machine(self) -> str:
        """Return an id that all workers of the machine share: the kernel's boot id."""
        return boot_id()

    def session(self) -> Session:
        """Return the session; if its other side is lost, open a new session."""
        with self._lock:
            if self._session is not None and not _answers(self._session):
                lost, self._session = self._session, None
                lost.close()
            if self._session is None:
                self._session = self.open_session()
            self._error = ""
            return self._session

    def _try_to_open(self) -> None:
        try:
            self.session()
        except Exception as error:  # reported by description(); the worker stays usable
            self._error = f"{type(error).__name__}: {error}"

    def _close(self) -> None:
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def description(self) -> dict[str, Any]:
        """Return this worker's name, machine, versions and session as plain values."""
        if self._session is None:
            self._try_to_open()
        info = self._session.info if self._session is not None else {}
        return {
            "worker": self._worker_name,
            "address": self._worker_address,
            "host": host_name(),
            "machine": self.machine(),
            "arch": os.uname().machine,
            "dgkit": _version.__version__,
            "agent": self.agent,
            "info": info,
            "error": self._error,
        }


def _answers(session: Session) -> bool:
    """Return whether the other side of a session answers."""
    try:
        session.stats()
    except (ClosedError, PeerError):
        return False
    return True


def plugin_here(name: str) -> PairPlugin:
    """Return the plugin of the worker that runs this task.

    Raises:
        ClosedError: The fleet was closed, or the scheduler has restarted and lost the plugin.
    """
    worker = get_worker()
    plugin = worker.plugins.get(name)
    if plugin is None:
        raise ClosedError(f"worker {worker.name} has no session of this fleet: make a new Fleet")
    assert isinstance(plugin, PairPlugin)
    return plugin


def session_here(name: str) -> Session:
    """Return the session of the worker that runs this task."""
    return plugin_here(name).session()


def describe(name: str) -> dict[str, Any]:
    """Describe the worker that runs this task."""
    return plugin_here(name).description()
