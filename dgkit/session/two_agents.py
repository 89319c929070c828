# SPDX-License-Identifier: Apache-2.0
"""Backend where both sides are agents: this process's bytes cross the wire, without DMA."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

from ..dma.bytes_memory import fill
from ..errors import PeerError, Unsupported
from ..sizes import STAGE_BYTES, STAGE_SLOTS
from ..types import Access
from ..wire.connection import Connection
from ..wire.messages import Allocate, Allocated, Bye, Fetch, Fetched, Import, Stage
from .remote_dpu import RemoteDpu, RemoteJob, SentRequest
from .staging import Staging

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.job import Chunk, Step
    from .session_region import SessionRegion

_BYE_S = 1.0


class _WireStaging(Staging):
    """Slots in memory of the DPU's agent."""

    def open(self) -> None:
        """Have the agent allocate the memory, unless that was done before."""
        if not self.handle:
            size, access = self.slots * self.slot_size, int(Access.RW)
            self._create(
                Allocate(size=size, access=access, export=False, name="staging", staging=True)
            )


class _WireJob(RemoteJob):
    """Transfer whose chunks are each a Stage and a Move, or a Move and a Fetch."""

    def _load(self, chunk: Chunk) -> Step | None:
        if self.view is None:
            return self._move(chunk)
        staged = bytes(self.view[chunk.at : chunk.at + chunk.size])
        stage = Stage(region=self._slots.handle, offset=chunk.slot, data=staged)
        return SentRequest(self.link, stage)

    def _store(self, chunk: Chunk) -> Step | None:
        if self.writes:
            return self._move(chunk)
        fetch = Fetch(region=self._slots.handle, offset=chunk.slot, size=chunk.size)
        return SentRequest(self.link, fetch)

    def _record(self, chunk: Chunk, result: Any) -> None:
        super()._record(chunk, result)
        if isinstance(result, Fetched):
            if len(result.data) != chunk.size:
                raise PeerError(f"the DPU sent {len(result.data)} bytes of {chunk.size}")
            fill(self.data, chunk.at, memoryview(result.data))


class TwoAgents(RemoteDpu):
    """Moves bytes by requests to the DPU's agent, between its memory and that of the host's agent.

    Data of this process crosses the connection to the DPU, in pieces of at most 32 KiB, into
    staging memory of the DPU. The end of either connection ends both.

    Args:
        link: Connection to the DPU's agent.
        host: Connection to the host's agent.
        device: Device of this process, which is not used.
        provider: Name of the DPU's provider.
        timeout: Seconds, for each plain request.
    """

    _job_type = _WireJob
    over_wire = True

    def __init__(
        self, link: Connection, host: Connection, device: Device, provider: str, timeout: float
    ) -> None:
        super().__init__(link, device, provider, timeout)
        self._host = host
        link.end_with(host)

    def _large_staging(self, device: Device) -> Staging:
        """Return the staging memory of the worker, which is the DPU's."""
        return _WireStaging(self.link, device, STAGE_BYTES, STAGE_SLOTS, self._timeout)

    def _move_whole(self, *_: Any, **__: Any) -> None:
        """Leave all transfers to the worker: their bytes cross the wire."""

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have one of the agents allocate memory; the DPU's agent imports memory of the host's."""
        if region.on == "dpu":
            return super().allocate(region, name, place, timeout)
        request = Allocate(
            size=region.size, access=int(region.access), export=True, name=name, place=place
        )
        allocated: Allocated = region.create(self._host, request, timeout)
        region.token = allocated.token
        try:
            imported = region.create(self.link, Import(token=region.token), self._timeout)
            region.handle = imported.region
        except BaseException:
            region.free_at_agents(0.0, self._timeout)
            raise
        return allocated

    def adopt(self, region: SessionRegion) -> None:  # noqa: ARG002 - none can be
        """Refuse a region of this process.

        Raises:
            Unsupported: Always.
        """
        raise Unsupported(
            errno.EOPNOTSUPP,
            "both sides of this session are agents, and no DMA reaches the memory of this process: "
            "session.empty() allocates memory at one of them, session.write() fills it",
        )

    def close(self) -> None:
        """Free the staging memory and end the connection to the host's agent."""
        super().close()
        if self._host.dead is None:
            with contextlib.suppress(PeerError):  # a lost or stuck agent frees everything itself
                self._host.ask(Bye(), timeout=min(self._timeout, _BYE_S))
        self._host.close()
