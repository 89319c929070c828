# SPDX-License-Identifier: Apache-2.0
"""GPU queue of a session: the host's kernels read and write memory of the DPU."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import memory
from ..dma.gpu_queue import GpuStamp, KernelQueue, RingConfig, ring_depth
from ..dma.remote_ring import ExportedRing
from ..errors import ClosedError, DgkitError, PeerError, Unsupported
from ..types import Access, Status
from ..unique import Closable
from ..validate import whole
from ..wire.creation import Creation
from ..wire.host_id import boot_id
from ..wire.messages import RING_LOCALS, CloseRing, OpenRing

if TYPE_CHECKING:
    from .resources import SessionResources
    from .session_region import SessionRegion

_numbers = itertools.count(1)


def _check(
    resources: SessionResources, region: SessionRegion, local: Sequence[SessionRegion]
) -> None:
    """Check that the agent can serve a ring of this process for these regions."""
    if resources.role != "host":
        raise Unsupported(
            errno.EOPNOTSUPP,
            "this process is not the host: kernels run there, and its session opens their queue",
        )
    if resources.agent.boot != boot_id():
        raise Unsupported(
            errno.EXDEV,
            f"the DPU is on another machine ({resources.agent.machine}): a GPU queue is memory "
            "that its kernels and the DPU share, so both are on one machine; start the transfers "
            "here (session.write, session.read)",
        )
    if region.on != "dpu":
        raise ValueError(f"{region!r} is the host's: kernels put into a region with on='dpu'")
    if not 1 <= len(local) <= RING_LOCALS:
        raise ValueError(
            f"{len(local)} local regions were given; a GPU queue has 1 to {RING_LOCALS}"
        )
    for each in local:
        if each.on != "host":
            raise ValueError(f"{each!r} is the DPU's: kernels put from the host's memory")


class SessionGpuQueue(KernelQueue, Closable):
    """Queue of a session that kernels of this process post to. Created by `Session.gpu_queue`.

    Its ring is in this process's memory; the DPU serves it. If the DPU's process dies, every wait
    of a kernel ends with status CLOSED.
    """

    def __init__(
        self,
        resources: SessionResources,
        region: SessionRegion,
        local: Sequence[SessionRegion],
        *,
        depth: int,
        weak: bool,
        timeout: float,
        trace: bool,
    ) -> None:
        super().__init__()
        self._closed, self._pid, self._forgotten = True, os.getpid(), False
        self._link = resources.dpu.link
        self._timeout = resources.timeout
        self.provider = resources.dpu.provider
        self.depth, self.weak, self.timeout = ring_depth(depth), bool(weak), timeout
        index = next(_numbers)
        config = RingConfig(
            self.depth, weak=self.weak, timeout=timeout, trace=bool(trace), index=index
        )
        self._memory = memory.empty(ExportedRing.size_of(config))
        self._region = resources.device.register(self._memory, Access.RW)
        self._ring = ExportedRing(self._region, config)
        self._creation = Creation(self._link)
        try:
            request = OpenRing(
                memory=self._region.export(), region=region.handle,
                locals=[each.handle for each in local], depth=self.depth, weak=self.weak,
                index=index, trace=bool(trace),
            )  # fmt: skip
            opened = self._link.ask(request, timeout=self._timeout, pending=self._creation)
            self._handle = opened.ring
            ids = zip((region, *local), (opened.remote, *opened.locals), strict=True)
            self._ids: dict[int, int] = {each.id: number for each, number in ids}
            self._closed = False
        except BaseException:
            self._creation.undo()  # first: the region is in use as long as the agent serves it
            self._free_memory(self._timeout)
            raise

    def id_of(self, region: SessionRegion) -> int:
        """Return the id by which kernels name a region of this queue.

        Raises:
            KeyError: The queue was not opened with it.
        """
        if region.id not in self._ids:
            raise KeyError(f"the GPU queue was not opened with {region!r}")
        return self._ids[region.id]

    def uses(self, region: SessionRegion) -> bool:
        """Return whether the queue was opened with this region."""
        return region.id in self._ids

    def _shared_memory(self) -> tuple[int, int, int, int]:
        if self._closed:
            raise ClosedError("this GPU queue is closed")
        address = self._ring.address
        return self._memory.fd, self._memory.size, address, address

    @property
    def completed(self) -> int:
        """Number of complete operations: all up to the first that is not complete."""
        return self._words()[1]

    @property
    def first_error(self) -> tuple[Status, int | None]:
        """Status and ticket of the first failed operation; OK and None if none failed."""
        _, _, status, ticket = self._words()
        return status, ticket

    def trace(self) -> list[GpuStamp]:
        """Return the stamps of the latest complete operations, at most `depth`, oldest first.

        The DPU stores its stamps in shared memory; both sides use the same machine's clock.

        Raises:
            ValueError: The queue was opened without `trace=True`.
        """
        if self._closed:
            raise ClosedError("this GPU queue is closed")
        return self._ring.trace()

    @property
    def lost(self) -> bool:
        """True if the DPU no longer serves the queue."""
        return bool(self._words()[0])

    def _words(self) -> tuple[int, int, Status, int | None]:
        if self._closed:
            raise ClosedError("this GPU queue is closed")
        return self._ring.words()

    @property
    def closed(self) -> bool:
        """True if the queue is closed."""
        return self._closed

    def close(self) -> None:
        """Refuse new operations and end every wait of a kernel. Idempotent.

        This never waits for a kernel.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._link.dead is None:
                self._creation.end(CloseRing(ring=self._handle), timeout=self._timeout)
        except PeerError:
            pass  # the agent, which used the ring, is gone
        finally:
            self._creation.undo()
            self._free(lambda: self._free_memory(self._timeout))

    def _free_memory(self, timeout: float) -> None:
        self._ring.release()
        self._region.close(timeout)
        self._memory.close()

    def _free_memory_later(self) -> None:
        """Free the memory without waiting. For finalizers; the agent may still map it."""
        if not self._forgotten:
            self._forgotten = True

            def free() -> None:
                with contextlib.suppress(DgkitError):
                    self._free_memory(0)

            self._free(free)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        try:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        finally:
            self._closed = True
            self._creation.undo_later(self._free_memory_later)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "weak" if self.weak else "strong"
        return f"<dgkit.SessionGpuQueue on {self.provider}, depth {self.depth}, {state}>"


def open_gpu_queue(
    resources: SessionResources,
    region: SessionRegion,
    local: Sequence[SessionRegion],
    *,
    depth: int,
    weak: bool,
    timeout: float,
    trace: bool,
) -> SessionGpuQueue:
    """Open a queue between regions of the session, as Session.gpu_queue() does."""
    _check(resources, region, local)
    return SessionGpuQueue(
        resources, region, local, depth=whole("depth", depth, 1), weak=weak, timeout=timeout,
        trace=trace,
    )  # fmt: skip
