# SPDX-License-Identifier: Apache-2.0
"""Rings of GPU queues whose kernels and whose proxy are in different processes."""

from __future__ import annotations

from collections.abc import Sequence

from ._ffi import check, ffi, lib
from .buffer_export import exported
from .gpu_queue import TICKET_MAX, RingConfig, stamps, status_of

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from ..types import Status
    from ._ffi import native
    from .gpu_queue import GpuStamp
    from .gpu_queue_proxy import Proxy
    from .region import Region, RemoteRegion

_TRACE_SHARED = 2  # dg_ring_config.trace: the proxy stores its stamps in the ring's memory


class ExportedRing:
    """Ring in memory of this process that the proxy of another process serves.

    Args:
        region: Region of `dgkit.empty()` memory of this process, at least `size_of` bytes.
        config: Configuration of the ring.
    """

    def __init__(self, region: Region, config: RingConfig) -> None:
        self.region = region
        self._config = config.native(_TRACE_SHARED)
        self._bytes, self._pin = exported(region.memory.buffer)
        check(lib.dg_ring_lay_out(self._bytes, self._config))
        lib.dg_ring_watch(region._r.c, self._bytes, self._config)

    @staticmethod
    def size_of(config: RingConfig) -> int:
        """Return the size of a ring in bytes."""
        return int(lib.dg_ring_memory_size(config.native(_TRACE_SHARED)))

    @property
    def address(self) -> int:
        """Address of the ring's memory, which begins with its `dg_gpu_queue`."""
        return int(ffi.cast("uintptr_t", self._bytes))

    def words(self) -> tuple[int, int, Status, int | None]:
        """Return whether the ring is closed, the completed count, the first error, its ticket."""
        raw = ffi.new("dg_ring_words *")
        lib.dg_ring_words_get(self._bytes, self._config, raw)
        error = int(raw.first_error)
        ticket = ((error >> 8) - 1) & TICKET_MAX if error else None
        return int(raw.closed), int(raw.done), status_of(error & 255), ticket

    def lose(self) -> None:
        """End every wait of a kernel after the proxy's process has ended."""
        lib.dg_ring_lose(self._bytes, self._config)

    def trace(self) -> list[GpuStamp]:
        """Return the stamps of the latest complete operations, oldest first.

        Raises:
            ValueError: The ring has no trace.
        """
        if not self._config.trace:
            raise ValueError("the GPU queue was opened without trace=True")
        depth = int(self._config.depth)
        raw = ffi.new("dg_ring_stamp[]", depth)
        count = check(lib.dg_ring_stamps_get(self._bytes, self._config, raw, depth))
        return stamps(raw, count)

    def release(self) -> None:
        """Release the ring's memory."""
        ffi.release(self._pin)


class ImportedRing:
    """Ring in another process's memory, whose kernels read and write this process's memory.

    Args:
        proxy: Proxy that serves the ring.
        memory: Memory of the ring.
        config: Configuration of the ring; its time limit applies to the kernels and is not used
            here.
        own: Memory of this process; to a kernel it is the remote region.
        own_import: The same memory, imported.
        peers: Memory of the other process; to a kernel they are local regions.

    Raises:
        Unsupported, BoundsError, ClosedError: `memory` cannot be used.
    """

    def __init__(
        self,
        proxy: Proxy,
        memory: RemoteRegion,
        config: RingConfig,
        *,
        own: Region,
        own_import: RemoteRegion,
        peers: Sequence[RemoteRegion],
    ) -> None:
        self._r: native.dg_ring | None = None
        self._proxy, self._keep = proxy, (memory, own, own_import, *peers)
        raw = config.native(_TRACE_SHARED)
        raw.memory = memory.id
        raw.own, raw.own_import, raw.n_peers = own.id, own_import.id, len(peers)
        for i, peer in enumerate(peers):
            raw.peers[i] = peer.id
        out = ffi.new("dg_ring **")
        with proxy.using:
            check(lib.dg_ring_open(proxy._handle(), raw, out))
        self._r = out[0]

    def close(self) -> None:
        """End every operation and every wait of a kernel, then release the memory. Idempotent."""
        with self._proxy.using:
            ring, self._r = self._r, None
            if ring is not None:
                lib.dg_ring_free(ring)
