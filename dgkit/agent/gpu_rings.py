"""GPU queues of a client: rings in its memory, which a proxy of this process serves."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from ..dma.gpu_queue import RingConfig, check_served
from ..dma.proxy import Proxy
from ..dma.remote_ring import ImportedRing
from ..errors import ClosedError, LimitReached, PeerError
from ..wire.messages import MAX_RINGS, OpenRing, RingOpened

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from ..dma import Device, Region, RemoteRegion
    from ..dpu.region_ref import RegionRef
    from .account import Allowance

_SPIN_US = 1000.0
_PLACE_BYTES = 512  # memory that the C core uses for each slot of a ring


class ClientRings:
    """Rings of one client, with a proxy of their own. Called by the client's control worker.

    Args:
        allowance: The client's allowance, to which a ring is charged.
        regions: The client's regions.
        region: Returns the region of a handle, or raises ClosedError.
    """

    def __init__(
        self, allowance: Allowance, regions: Sized, region: Callable[[int], RegionRef]
    ) -> None:
        self._allowance = allowance
        self._regions = regions
        self._region = region
        self._rings: dict[int, tuple[ImportedRing, RemoteRegion, int]] = {}
        self._proxy: Proxy | None = None
        self._handles = 0

    def open(self, device: Device, request: OpenRing) -> RingOpened:
        """Serve a ring.

        Raises:
            LimitReached: The client has as many rings as it may, or too little memory is left.
            Unsupported: The provider, the ring's memory or a region cannot be used.
            ClosedError: A region is unknown.
            PeerError: A region belongs to the wrong side.
        """
        if len(self._rings) >= MAX_RINGS:
            raise LimitReached(
                errno.ENOSPC,
                f"a client may have {MAX_RINGS} GPU queues at an agent: close one first",
            )
        check_served(device, ())
        own, own_import, peers = self._used(request)
        allowance, charged = self._allowance, request.depth * _PLACE_BYTES
        with contextlib.ExitStack() as undo:
            allowance.take_memory(charged)
            undo.callback(allowance.give_memory, charged)
            allowance.take_region(len(self._regions))
            undo.callback(allowance.give_region)
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
        self._handles += 1
        self._rings[self._handles] = ring, memory, charged
        return RingOpened(request.id, self._handles, own.id, [peer.id for peer in peers])

    def _used(self, request: OpenRing) -> tuple[Region, RemoteRegion, list[RemoteRegion]]:
        """Return the DPU's region, its import, and the client's regions."""
        ref = self._region(request.region)
        own = ref.region
        if own is None:
            raise PeerError(
                f"region {request.region} is the host's: kernels put into memory of the DPU"
            )
        peers = []
        for handle in request.locals:
            peer = self._region(handle).remote
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
        if handle not in self._rings:
            raise ClosedError(f"GPU queue {handle} is unknown to the agent, or was closed")
        ring, memory, charged = self._rings.pop(handle)
        with contextlib.ExitStack() as steps:  # in reverse order
            steps.callback(self._allowance.give_region)
            steps.callback(self._allowance.give_memory, charged)
            steps.callback(memory.close)
            steps.callback(ring.close)

    def close_all(self) -> None:
        """Close all rings and stop the proxy, before the client's regions are closed."""
        with contextlib.ExitStack() as steps:
            if self._proxy is not None:
                steps.callback(self._proxy.close)
            for handle in list(self._rings):
                steps.callback(self.close, handle)
