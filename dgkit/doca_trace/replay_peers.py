# SPDX-License-Identifier: Apache-2.0
"""Share descriptors, GIDs and numbers of queue pairs between replays at the same time."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

from ..files import replace_file

GID_BYTES = 16
_WAIT_S = 5.0  # for a replay that has just been started


class Peers:
    """Files in a folder that all replays have.

    Args:
        index: This replay's.
        verbs: Replays that have calls of doca_verbs.h.
    """

    def __init__(self, folder: Path, index: int, verbs: list[int]) -> None:
        self._folder, self._index = folder, index
        self._others = [other for other in verbs if other != index]
        self._objects: dict[str, int] = {}
        if index in verbs:
            self._open_nic()

    def put(self, name: str, content: bytes) -> None:
        """Store the object that a trace calls `name`, for all replays."""
        replace_file(self._folder / name.replace(":", "-"), content)

    def get(self, name: str) -> bytes | None:
        """Return the object that put() stored under a name, or None."""
        try:
            return (self._folder / name.replace(":", "-")).read_bytes()
        except FileNotFoundError:
            return None

    # ---- queue pairs ----

    def put_queue_pair(self, recorded: int, number: int) -> None:
        """Keep the number that a queue pair has here."""
        self.put(f"qpn:{self._index}:{recorded}", str(number).encode())

    def queue_pair(self, recorded: int) -> int | None:
        """Return the number of a queue pair, preferably the other side's; None if it is unknown."""
        for index in (*self._others, self._index):
            if number := self.get(f"qpn:{index}:{recorded}"):
                return int(number)
        return None

    def gid(self) -> bytes | None:
        """Return the GID of the other side's NIC; this side's if there is no other."""
        index = self._others[0] if self._others else self._index
        deadline = time.monotonic() + _WAIT_S
        while (found := self.get(f"gid:{index}")) is None and time.monotonic() < deadline:
            time.sleep(0.001)
        return found

    # ---- objects of libibverbs, whose calls are not recorded ----

    def verbs_object(self, kind: str) -> int | None:
        """Return the address of softdoca's first device, a context or a PD of it; or None."""
        return self._objects.get(kind)

    def _open_nic(self) -> None:
        """Open the NIC and announce its GID to the other replays."""
        verbs, gid, count = (
            ctypes.CDLL(None),
            ctypes.create_string_buffer(GID_BYTES),
            ctypes.c_int(),
        )
        verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
        verbs.ibv_open_device.restype = verbs.ibv_alloc_pd.restype = ctypes.c_void_p
        devices = verbs.ibv_get_device_list(ctypes.byref(count))
        if not count.value:
            return
        context = verbs.ibv_open_device(ctypes.c_void_p(devices[0]))
        domain = verbs.ibv_alloc_pd(ctypes.c_void_p(context))
        self._objects = {"ibv_device": devices[0], "ibv_context": context, "ibv_pd": domain}
        if not verbs.ibv_query_gid(ctypes.c_void_p(context), 1, 0, gid):
            self.put(f"gid:{self._index}", gid.raw)
