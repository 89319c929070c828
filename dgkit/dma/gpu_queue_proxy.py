# SPDX-License-Identifier: Apache-2.0
"""Thread that serves the GPU queues of one device."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass

from ..errors import ClosedError, DgkitError
from ..unique import Unique
from ._ffi import check, ffi, lib, spin_ns

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from ._ffi import native
    from .context import DeviceContext


@dataclass(frozen=True, slots=True)
class ProxyStats:
    """Counts of a device's proxy: its passes, and the time it spends spinning and sleeping.

    Attributes:
        rings: Queues that the proxy serves.
        passes: Passes over all queues.
        idle: Passes that found nothing to do.
        spun_ns: Time of idle passes.
        sleeps: Sleeps between idle passes.
        slept_ns: Total time of the sleeps.
        records: Records taken.
        batches: Posts to the provider.
    """

    rings: int
    passes: int
    idle: int
    spun_ns: int
    sleeps: int
    slept_ns: int
    records: int
    batches: int


class Proxy(Unique):
    """Thread that serves the GPU queues of one device. Opened with the first GPU queue.

    Attributes:
        device: The device.
    """

    def __init__(self, device: DeviceContext, spin_us: float) -> None:
        self._p: native.dg_proxy | None = None
        self.device = device
        self._pid, self._using = os.getpid(), threading.RLock()
        out = ffi.new("dg_proxy **")
        try:
            check(lib.dg_proxy_open(device._handle(), spin_ns(spin_us), out))
        finally:
            self._p = out[0] or None

    @property
    def using(self) -> threading.RLock:
        """Lock for calls to the proxy and its queues, which another thread may close."""
        if self._pid != os.getpid():  # forked: another thread of the parent may hold the lock
            self._pid, self._using = os.getpid(), threading.RLock()
        return self._using

    def _handle(self) -> native.dg_proxy:
        if self._p is None:
            raise ClosedError("the proxy is closed")
        return self._p

    def stats(self) -> ProxyStats:
        """Return the counts so far."""
        raw = ffi.new("dg_proxy_stats *")
        with self.using:
            check(lib.dg_proxy_stats_get(self._handle(), raw))
        return ProxyStats(
            raw.rings, raw.passes, raw.idle, raw.spun_ns, raw.sleeps, raw.slept_ns, raw.records,
            raw.batches,
        )  # fmt: skip

    def close(self) -> None:
        """Stop the thread; its queues are closed. Idempotent."""
        with self.using:
            proxy, self._p = self._p, None  # first: it must not be closed again
            if proxy is None:
                return
            try:
                check(lib.dg_proxy_close(proxy))
            except DgkitError:  # it serves GPU queues
                self._p = proxy
                raise

    def __del__(self) -> None:
        if getattr(self, "_p", None) is not None:  # the device did not get it
            with contextlib.suppress(DgkitError):
                self.close()
