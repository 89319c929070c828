# SPDX-License-Identifier: Apache-2.0
"""Memory of another process that this one keeps from being released, and accesses by address."""

from __future__ import annotations

from ._ffi import check, ffi, lib

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from .region import RemoteRegion


class HeldMemory:
    """Imported memory, accessed by its address here; it is a Memory that can be registered.

    Its owner's close() waits until close() here.

    Raises:
        ClosedError: Its owner has closed it.
        Unsupported: This process does not map it.
    """

    place = "remote"
    fd, fd_offset, share_process, may_fault = -1, 0, False, False

    def __init__(self, remote: RemoteRegion) -> None:
        self._held: RemoteRegion | None = None
        base = ffi.new("char **")
        check(lib.dg_region_hold(remote._r.c, base))
        self._held, self.size, self.emulated = remote, remote.size, remote.emulated
        self.buffer = memoryview(ffi.buffer(base[0], remote.size)).cast("B")

    def close(self) -> None:
        """Let the owner release the memory, which must not be accessed any more. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            lib.dg_region_let_go(held._r.c)
