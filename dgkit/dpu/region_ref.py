# SPDX-License-Identifier: Apache-2.0
"""Reference of the DPU to a region: its own memory, or an imported one."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from ..dma import RemoteRegion

if TYPE_CHECKING:
    from ..dma import Region
    from ..memory import HostMemory


class RegionRef:
    """Region that the DPU can transfer with: its own (`region`, `memory`) or imported (`remote`).

    `charged` is how many bytes of the agent's memory limit the region takes; `staging` says that it
    does not count as one of the client's regions. `inline_ok` says
    whether a small copy may run on the agent's event loop: no other process takes part in it.
    """

    __slots__ = (
        "__weakref__", "_lock", "_loopback", "charged", "inline_ok", "memory", "region", "remote",
        "size", "staging",
    )  # fmt: skip

    def __init__(
        self,
        *,
        region: Region | None = None,
        memory: HostMemory | None = None,
        remote: RemoteRegion | None = None,
        charged: int = 0,
    ) -> None:
        self.region, self.memory, self.remote = region, memory, remote
        self.charged, self.staging = charged, False
        self.size = (region or remote).size  # type: ignore[union-attr]
        self._lock = threading.Lock()  # protects only this region's import
        self._loopback: RemoteRegion | None = None
        self.inline_ok = remote is None or remote.method in ("map", "gpu")
        if remote is not None and remote.method == "doca":
            # softdoca has no hardware to reach the memory with: the exporter may have to copy.
            self.inline_ok = remote.device.provider == "doca"

    def as_remote(self) -> RemoteRegion:
        """Return the region as the remote end of a DMA.

        The DPU's own memory is imported once, through its own descriptor.
        """
        if self.remote is not None:
            return self.remote
        with self._lock:  # worker threads call this concurrently
            if self._loopback is None:
                assert self.region is not None
                self._loopback = RemoteRegion(self.region.device, self.region.export())
            return self._loopback

    def close_loopback(self) -> None:
        """Close the import of the DPU's own memory; the memory stays registered."""
        if self._loopback is not None:
            self._loopback.close()
            self._loopback = None

    def close(self, timeout: float) -> None:
        """Close the region and free the memory under it; a failed step does not skip the others.

        Raises:
            RegionBusy: An importer has a transfer in flight; call again.
        """
        with contextlib.ExitStack() as steps:  # in reverse order
            steps.callback(self._close_region, timeout)
            if self.remote is not None:
                steps.callback(self.remote.close)
            steps.callback(self.close_loopback)

    def _close_region(self, timeout: float) -> None:
        """Close the exported region; only then is its memory unused."""
        if self.region is not None:
            self.region.close(timeout)
        if self.memory is not None:
            self.memory.close()
