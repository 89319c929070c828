# SPDX-License-Identifier: Apache-2.0
"""Server of dgkit's NCCL plugin: threads that copy between regions of this user's processes."""

from __future__ import annotations

from pathlib import Path

from ._ffi import check, ffi, lib

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from ._ffi import native
    from .device import Device


class NcclServer:
    """Serves clients at a Unix socket, each by a thread of the C core, until it is closed.

    Args:
        device: Device that copies GPU memory, if it can. Close the server first.
        path: The socket; a file that is there is replaced.
    """

    def __init__(self, device: Device, path: Path) -> None:
        self._m: native.dg_mover | None = None
        path.unlink(missing_ok=True)
        out = ffi.new("dg_mover **")
        check(lib.dg_mover_open(device._handle(), bytes(path), out))
        self._m = out[0]

    def close(self) -> None:
        """End all clients. Idempotent."""
        server, self._m = self._m, None
        if server is not None:
            lib.dg_mover_close(server)
