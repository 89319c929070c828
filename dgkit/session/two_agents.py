"""Backend where both sides are agents: this process's bytes cross the wire, without DMA."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import DgkitError, PeerError, Unsupported
from ..sizes import STAGE_BYTES, STAGE_SLOTS
from ..types import Access
from ..wire.connection import Connection, Pending
from ..wire.messages import Allocate, Allocated, Bye, Fetch, Free, Import, Moved, Stage
from .remote_dpu import RemoteDpu
from .remote_transfer import RemoteTransfer
from .staging import Chunk, SlotPool
from .transfer import TransferReport

if TYPE_CHECKING:
    from ..dma import Device
    from .region import SessionRegion

_BYE_S = 1.0


class _WireTransfer(RemoteTransfer):
    """Transfer whose chunks are each a Stage and a Move, or a Move and a Fetch."""

    over_wire = True

    def _post(self, chunk: Chunk) -> None:
        if self._data is not None:
            self._move(chunk, self._on_moved)
            return
        staged = bytes(self._pool.buffer[chunk.slot : chunk.slot + chunk.size])
        self._request(chunk, self._on_staged, Stage, self._pool.handle, chunk.slot, staged)

    def _on_staged(self, chunk: Chunk, pending: Pending) -> None:
        self._go_on_with(chunk, pending, lambda: self._move(chunk, self._on_reply))

    def _on_moved(self, chunk: Chunk, pending: Pending) -> None:
        moved = pending.reply
        fields = (self._pool.handle, chunk.slot, chunk.size)
        then = lambda chunk, pending: self._on_fetched(moved, chunk, pending)  # noqa: E731
        self._go_on_with(chunk, pending, lambda: self._request(chunk, then, Fetch, *fields))

    def _go_on_with(self, chunk: Chunk, pending: Pending, step: Callable[[], None]) -> None:
        """Start the second step of a chunk, unless the first failed or the transfer has ended."""
        if pending.error is not None or self._error is not None or chunk.request is not pending:
            self._end_chunk(chunk, pending, None)
            return
        try:
            step()
        except DgkitError as exc:
            pending.error = exc
            chunk.request = pending
            self._on_reply(chunk, pending)
        except BaseException:  # such as Ctrl-C: the chunk is posted again
            self._torn = True
            raise

    def _on_fetched(self, moved: Moved, chunk: Chunk, pending: Pending) -> None:
        if pending.error is None and chunk.request is pending and not chunk.finished:
            data: Any = pending.reply.data
            if len(data) == chunk.size:
                self._pool.buffer[chunk.slot : chunk.slot + chunk.size] = data
                self._end_chunk(chunk, pending, moved)
                return
            pending.error = PeerError(f"the DPU sent {len(data)} bytes of {chunk.size}")
        self._on_reply(chunk, pending)


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

    _transfer_kind = _WireTransfer

    def __init__(
        self, link: Connection, host: Connection, device: Device, provider: str, timeout: float
    ) -> None:
        super().__init__(link, device, provider, timeout)
        self._host = host
        self._at_host: dict[int, int] = {}  # handles at the host's agent, by the region's id
        link.tie(host)

    def pool(self, size: int) -> SlotPool:  # noqa: ARG002 - one size of slot serves all
        """Return the buffer of this process; the DPU's memory is allocated on first use."""
        with self._create_lock:
            if STAGE_BYTES not in self._pools:
                buffer = memoryview(bytearray(STAGE_SLOTS * STAGE_BYTES))
                pool = SlotPool(STAGE_BYTES, STAGE_SLOTS, buffer)
                fields = (len(buffer), int(Access.RW), False, "staging", "host", True)
                pool.handle = self.link.ask(Allocate, *fields, timeout=self._timeout).region
                self._pools[STAGE_BYTES] = pool
            return self._pools[STAGE_BYTES]

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait."""
        return self._transfer(region, offset, len(view), memoryview(view)).run()

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have one of the agents allocate memory; the DPU's agent imports memory of the host's."""
        if region.on == "dpu":
            return super().allocate(region, name, place, timeout)
        fields = (region.size, int(region.access), True, name, place)
        allocated: Allocated = self._host.ask(Allocate, *fields, timeout=timeout)
        try:
            region.handle = self.link.ask(Import, allocated.token, timeout=self._timeout).region
        except BaseException:
            self._host.ask(Free, allocated.region, 0.0, timeout=self._timeout)
            raise
        region.token = allocated.token
        self._at_host[region.id] = allocated.region
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

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Have the DPU's agent close its import, then the host's agent the region."""
        super().forget(region, timeout)
        region.handle = 0
        handle = self._at_host.get(region.id)
        if handle is not None:
            self._host.ask(Free, handle, timeout, timeout=self._timeout + timeout)
            del self._at_host[region.id]

    def close(self) -> None:
        """Free the staging memory and end the connection to the host's agent."""
        super().close()
        if self._host.dead is None:
            with contextlib.suppress(PeerError):  # a lost or stuck agent frees everything itself
                self._host.ask(Bye, timeout=min(self._timeout, _BYE_S))
        self._host.close()
