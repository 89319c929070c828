"""GPU queue between two kernels: the host guest's emulated GPU posts, the Arm guest serves.

The ring with its doorbells and completions is memory of the host guest in the DPU guest's PCI BAR,
and so is the memory of which its kernels send and receive bytes. The proxy is a thread on the Arm
cores. Both sides call one function with the same name; pair.py carries what they have to know.
Emulator only: no hardware has such a BAR.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import memory
from ..dma.gpu_queue import KernelQueue, RingConfig, ring_depth
from ..dma.proxy import Proxy
from ..dma.remote_ring import ExportedRing, ImportedRing
from ..errors import ClosedError, TestbedError
from ..types import Access, Status
from ..wire.messages import RingAnswer, RingOffer, decode_ring_answer, decode_ring_offer, encode
from . import pair

if TYPE_CHECKING:
    from ..dma import Device, Region
    from ..dma.gpu_queue import GpuStamp
    from ..memory.bar import BarMemory

_LOCALS = 4  # dg_ring_config.peers of native/dgkit.h
_SPIN_US = 1000.0
_POLL_S = 0.1
_CLOSE_S = 30.0  # the other side may be about to close it, too


class BarGpuQueue(KernelQueue):
    """Queue that kernels of the host guest post to and the Arm cores serve; gpu_queue() opens it.

    Attributes:
        remote: Id by which kernels name the DPU guest's region.
    """

    weak = False

    def __init__(
        self,
        name: str,
        device: Device,
        local: Sequence[Region],
        *,
        depth: int,
        trace: bool,
        timeout: float,
    ) -> None:
        super().__init__()
        self._closed = True
        self.depth, self.timeout = ring_depth(depth), timeout
        config = RingConfig(self.depth, timeout=timeout, trace=trace, index=1)
        self._memory: BarMemory = memory.empty(ExportedRing.size_of(config), on="bar")
        self._region = device.register(self._memory, Access.RW)
        self._ring = ExportedRing(self._region, config)
        self._closed = False
        self.shared_offset = self._memory.mapped_file[1]
        try:
            tokens = [region.export() for region in local]
            answer = _answered(name, RingOffer(self._region.export(), tokens, self.depth, trace))
        except BaseException:
            self.close()
            raise
        self.remote = answer.remote
        self._ids = dict(zip((region.id for region in local), answer.locals, strict=True))

    def id_of(self, region: Region) -> int:
        """Return the id by which kernels name a region of this guest.

        Raises:
            KeyError: The queue was not opened with it.
        """
        if region.id not in self._ids:
            raise KeyError(f"the GPU queue was not opened with {region!r}")
        return self._ids[region.id]

    def _shared_memory(self) -> tuple[int, int, int, int]:
        address = self._open_ring().address
        return self._memory.mapped_file[0], self._memory.size, address, address

    @property
    def completed(self) -> int:
        """Number of complete operations: all up to the first that is not complete."""
        return self._open_ring().words()[1]

    @property
    def first_error(self) -> tuple[Status, int | None]:
        """Status and ticket of the first failed operation; OK and None if none failed."""
        return self._open_ring().words()[2:]

    def trace(self) -> list[GpuStamp]:
        """Return the stamps of the latest complete operations, oldest first.

        The kernel's stamps are by this guest's clock, the proxy's by the other guest's: never
        subtract one from the other.

        Raises:
            ValueError: The queue was opened without `trace=True`.
        """
        return self._open_ring().trace()

    def _open_ring(self) -> ExportedRing:
        if self._closed:
            raise ClosedError("this GPU queue is closed")
        return self._ring

    def close(self) -> None:
        """Revoke the Arm cores' access and free the ring. Idempotent.

        Raises:
            RegionBusy: They still serve it, and new operations are refused: close it there first.
        """
        if not self._closed:
            self._region.close(_CLOSE_S)
            self._closed = True
            self._ring.release()
            self._memory.close()

    def __enter__(self) -> BarGpuQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"depth {self.depth}"
        return f"<dgkit GPU queue in an emulated PCI BAR, served by the DPU guest, {state}>"


class ServedQueue:
    """Proxy on the Arm cores for a queue of the host guest. serve_gpu_queue() returns it.

    Attributes:
        region: Region into which its kernels put, and from which they get.
    """

    def __init__(self, device: Device, region: Region, offer: RingOffer) -> None:
        with contextlib.ExitStack() as undo:
            ring, own, *peers = [
                undo.enter_context(device.import_region(token))
                for token in (offer.ring, region.export(), *offer.locals)
            ]
            proxy = Proxy(device, _SPIN_US)
            undo.callback(proxy.close)
            config = RingConfig(offer.depth, trace=offer.trace, index=1)
            served = ImportedRing(proxy, ring, config, own=region, own_import=own, peers=peers)
            undo.callback(served.close)
            self._last_to_first = undo.pop_all()
        self.region, self._proxy = region, proxy
        self.answer = RingAnswer(offer.ring, region.id, [peer.id for peer in peers])

    @property
    def records(self) -> int:
        """Number of records that the Arm cores have taken."""
        return self._proxy.stats().records

    def close(self) -> None:
        """End every operation and every wait of a kernel, and release the memory. Idempotent."""
        self._last_to_first.close()

    def __enter__(self) -> ServedQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def gpu_queue(
    name: str,
    device: Device,
    local: Sequence[Region],
    *,
    depth: int = 64,
    trace: bool = False,
    timeout: float = 60.0,
) -> BarGpuQueue:
    """In the host guest, open a queue for kernels and wait until the Arm cores serve it.

    Args:
        name: Name under which the DPU guest calls serve_gpu_queue(), as for share().
        device: Device("soft").
        local: Up to four of its regions, of `dgkit.empty(on="bar")`: kernels put from there.
        depth: Maximum number of operations posted and not complete.
        trace: Store time stamps for each operation.
        timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.

    Raises:
        TestbedError: Nothing served it in two minutes; or this process runs in no guest.
        ValueError: A region is not in the BAR, or there are none or too many.
    """
    pair.guest()
    if not 1 <= len(local) <= _LOCALS:
        raise ValueError(f"{len(local)} local regions were given; there are 1 to {_LOCALS}")
    for region in local:
        if getattr(region.memory, "emulated", "") != "bar":
            raise ValueError(f"{region!r} is not of dgkit.empty(on='bar'): Arm cannot reach it")
    return BarGpuQueue(name, device, local, depth=depth, trace=trace, timeout=timeout)


def serve_gpu_queue(
    name: str, device: Device, region: Region, *, timeout: float = pair.WAIT_S
) -> ServedQueue:
    """In the DPU guest, serve the queue that the host guest opens under a name; wait for it.

    Args:
        name: The name.
        device: Device("soft").
        region: Its region, into which kernels may put, and from which they may get.
        timeout: Seconds.

    Raises:
        TestbedError: None was opened in that time; or this process runs in no guest.
    """
    pair.guest()

    def use(raw: bytes) -> ServedQueue:
        return ServedQueue(device, region, decode_ring_offer(raw))

    served = pair.latest("queue", name, timeout, f"no GPU queue {name!r} was opened", use)
    pair.write("served", name, encode(served.answer))
    return served


def _answered(name: str, offer: RingOffer) -> RingAnswer:
    """Offer a ring, and return the answer to it."""
    pair.write("queue", name, encode(offer))
    deadline = time.monotonic() + pair.WAIT_S
    while True:
        left = deadline - time.monotonic()
        raw = pair.read("served", name, left, f"nothing serves the GPU queue {name!r}")
        answer = decode_ring_answer(raw)
        if answer.ring == offer.ring:
            return answer
        if left < 0:
            raise TestbedError(f"nothing serves the GPU queue {name!r}")
        time.sleep(_POLL_S)
