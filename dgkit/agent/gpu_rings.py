# SPDX-License-Identifier: Apache-2.0
"""GPU queues of a client: rings in its memory, which a proxy of this process serves."""

from __future__ import annotations

import contextlib
import errno
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dma.gpu_queue import RingConfig, check_served
from ..dma.gpu_queue_proxy import Proxy
from ..dma.remote_ring import ImportedRing
from ..errors import ClosedError, LimitReached, PeerError
from ..wire.messages import MAX_RINGS, OpenRing, RingOpened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..dma import Device, Region, RemoteRegion
    from ..dpu.region_ref import RegionRef
    from .account import Allowance

_SPIN_US = 1000.0
_SLOT_BYTES = 512  # memory that the C core uses for each slot of a ring


@dataclass(frozen=True, slots=True)
class _Served:
    ring: ImportedRing
    memory: RemoteRegion
    charged: int  # bytes
    region: int  # handle of the region that its kernels put into


class ClientRings:
    """Rings of one client, with a proxy of their own. Thread-safe.

    The client's control worker opens and closes rings, and its moves' worker frees regions.

    Args:
        allowance: The client's allowance, to which a ring is charged.
        regions: The client's regions.
    """

    def __init__(self, allowance: Allowance, regions: Mapping[int, RegionRef]) -> None:
        self._allowance = allowance
        self._regions = regions
        self._lock = threading.RLock()
        self._rings: dict[int, _Served] = {}
        self._proxy: Proxy | None = None

    def __contains__(self, handle: int) -> bool:
        return handle in self._rings

    def open(self, device: Device, request: OpenRing, handle: int) -> RingOpened:
        """Serve a ring under a new handle.

        Raises:
            LimitReached: The client has as many rings as it may, or too little memory is left.
            Unsupported: The provider, the ring's memory or a region cannot be used.
            ClosedError: A region is unknown.
            PeerError: A region belongs to the wrong side.
        """
        with self._lock:
            return self._open(device, request, handle)

    def _open(self, device: Device, request: OpenRing, handle: int) -> RingOpened:
        if len(self._rings) >= MAX_RINGS:
            raise LimitReached(
                errno.ENOSPC,
                f"a client may have {MAX_RINGS} GPU queues at an agent: close one first",
            )
        check_served(device, ())
        own, own_import, peers = self._regions_of(request)
        allowance, charged = self._allowance, request.depth * _SLOT_BYTES
        with contextlib.ExitStack() as undo:
            allowance.charge_memory(charged)
            undo.callback(allowance.release_memory, charged)
            allowance.charge_region(len(self._regions))
            undo.callback(allowance.release_region)
            memory = device.import_region(request.memory)
            undo.callback(memory.close)
            self._proxy = self._proxy or Proxy(device, _SPIN_US)
            config = RingConfig(
                request.depth, weak=request.weak, trace=request.trace, index=request.index
            )
            ring = ImportedRing(
                self._proxy, memory, config, own=own, own_import=own_import, peers=peers
            )
            undo.pop_all()
        self._rings[handle] = _Served(ring, memory, charged, request.region)
        return RingOpened(ring=handle, remote=own.id, locals=[peer.id for peer in peers])

    def _regions_of(self, request: OpenRing) -> tuple[Region, RemoteRegion, list[RemoteRegion]]:
        """Return the DPU's region, its import, and the client's regions."""
        ref = self._regions[request.region]
        own = ref.region
        if own is None:
            raise PeerError(
                f"region {request.region} is the host's: kernels put into memory of the DPU"
            )
        peers = []
        for handle in request.locals:
            peer = self._regions[handle].remote
            if peer is None:
                raise PeerError(f"region {handle} is the DPU's: kernels put from the host's memory")
            peers.append(peer)
        check_served(own.device, (own, *peers))
        return own, ref.as_remote(), peers

    def close(self, handle: int) -> None:
        """Close a ring; this ends every wait of its kernels.

        Raises:
            ClosedError: The handle is unknown.
        """
        with self._lock, contextlib.ExitStack() as steps:  # in reverse order
            served = self._rings.pop(handle, None)
            if served is None:
                raise ClosedError(f"GPU queue {handle} is unknown to the agent, or was closed")
            steps.callback(self._allowance.release_region)
            steps.callback(self._allowance.release_memory, served.charged)
            steps.callback(served.memory.close)
            steps.callback(served.ring.close)

    @contextlib.contextmanager
    def revoked(self, region: int) -> Iterator[None]:
        """Close the rings whose kernels put into a region; the block then frees the region.

        No ring opens during the block. A ring whose kernels put from the region refuses that, and
        serves its other regions.
        """
        with self._lock:
            for handle, served in list(self._rings.items()):
                if served.region == region:
                    self.close(handle)
            yield

    def close_all(self) -> None:
        """Close all rings and stop the proxy, before the client's regions are closed."""
        with self._lock, contextlib.ExitStack() as steps:
            if self._proxy is not None:
                steps.callback(self._proxy.close)
            for handle in list(self._rings):
                steps.callback(self.close, handle)
