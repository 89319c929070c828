# SPDX-License-Identifier: Apache-2.0
"""GPU queue between two kernels: the host guest's emulated GPU posts, the Arm guest serves.

The queue with its doorbells and completions is memory of the host guest in the DPU guest's PCI BAR,
and so is the memory of which its kernels send and receive bytes. The proxy, or the software NIC, is
a thread on the Arm cores. Both sides call one function with the same name; guest_pair.py carries
the offer, and a TCP connection the answer. The connection stays open, and its end tells each side
of the end of the other one. Emulator only: no hardware has such a BAR.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, TypeVar

from .. import memory
from ..dma.gpu_queue import KernelQueue, RingConfig, ring_depth
from ..dma.gpu_queue_proxy import Proxy
from ..dma.held_memory import HeldMemory
from ..dma.nic import NicKey, VerbsQueue, VerbsQueueConfig
from ..dma.remote_ring import ExportedRing, ImportedRing
from ..errors import ClosedError, PeerLost, TestbedError
from ..types import Access, Status
from ..unique import Closable
from ..wire.messages import (
    UNREADABLE,
    RingAnswer,
    RingOffer,
    decode_ring_answer,
    decode_ring_offer,
    encode,
)
from . import guest_pair
from .guest import ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device, Region, RemoteRegion
    from ..dma.gpu_queue import GpuStamp
    from ..memory.bar import BarMemory

    Self = TypeVar("Self", bound="_BarQueue")

_LOCALS = 4  # dg_ring_config.peers of native/dgkit.h
_SPIN_US = 1000.0
_CLOSE_S = 30.0  # the other side closes it, too
_LOST_CLOSE_S = 1.0
_ANSWER = 1 << 13  # most bytes of an answer, in hexadecimal
_CLOSED = b"."  # sent before the connection's end, unless the process was killed
# A guest that says nothing for 30 s is lost (tcp(7)).
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
_FLUSHED, _RETRIES = 0x05, 0x15  # syndromes of dgkit/gpu_initiated/mlx5.py


class _BarQueue(KernelQueue, Closable):
    """Memory of a queue in the BAR, and the connection to the process that serves it."""

    weak = False
    _title = ""

    def __init__(self, device: Device, local: Sequence[Region], size: int) -> None:
        super().__init__()
        self._closed, self._lost, self._closing = True, False, False
        self._watcher: threading.Thread | None = None
        self._memory: BarMemory = memory.empty(size, on="bar")
        self._region = device.register(self._memory, Access.RW)
        self._local = list(local)
        self._closed = False
        self.shared_offset = self._memory.mapped_file[1]

    def _offer(self, name: str, doorbell: str, *, trace: bool) -> RingAnswer:
        """Offer the queue under a name, and return the answer of the process that serves it."""
        tokens = [region.export() for region in self._local]
        starts = [region.address for region in (self._region, *self._local)]
        ring = self._region.export()
        with socket.create_server((ADDRESSES["host"], 0)) as listener:
            listener.settimeout(guest_pair.WAIT_S)
            port = listener.getsockname()[1]
            offer = RingOffer(
                ring=ring, locals=tokens, depth=self.depth, trace=trace, doorbell=doorbell,
                starts=starts, port=port,
            )  # fmt: skip
            guest_pair.write("queue", name, encode(offer))
            try:
                self._connection, _ = listener.accept()
            except TimeoutError:
                raise TestbedError(f"nothing serves the GPU queue {name!r}") from None
        self._reader = self._connection.makefile("rb")
        try:
            answer = _heard(self._connection, self._reader, name, len(self._local))
        except BaseException:
            self._hang_up()
            raise
        _keep_alive(self._connection)
        return answer

    def _watch(self) -> None:
        """Follow the connection: its end is the end of the process that serves the queue."""
        self._watcher = threading.Thread(target=self._follow, name="dgkit-doorbell", daemon=True)
        self._watcher.start()

    def _follow(self) -> None:
        try:
            said = self._reader.read(1)
        except OSError:  # no sign of life
            said = b""
        if not self._closing:
            self._lost = said != _CLOSED
            self._end()

    def _end(self) -> None:
        """End every wait of a kernel: nobody serves the queue any more."""
        raise NotImplementedError

    def _shared_memory(self) -> tuple[int, int, int, int]:
        self._check_open()
        address = self._region.address
        return self._memory.mapped_file[0], self._memory.size, address, address

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this GPU queue is closed")

    def _index_of(self, region: Region) -> int:
        if region not in self._local:
            raise KeyError(f"the GPU queue was not opened with {region!r}")
        return self._local.index(region)

    @property
    def lost(self) -> bool:
        """True if the process on the Arm cores was killed, or its guest does not answer."""
        return self._lost

    def close(self) -> None:
        """Have the Arm cores release the queue, and free it. Idempotent.

        Raises:
            RegionBusy: They have not, or their process was killed: its slot of the BAR is free
                once another process of the DPU guest imports memory. Close it again.
        """
        if self._closed:
            return
        self._closing = True
        if self._watcher:
            self._hang_up()
        self._region.close(_LOST_CLOSE_S if self._lost else _CLOSE_S)
        self._closed = True
        self._release()
        self._memory.close()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError), self._connection:
            self._connection.shutdown(socket.SHUT_RDWR)  # also wakes _follow()
        if self._watcher:
            self._watcher.join()
        self._reader.close()

    def _release(self) -> None:
        """Release the objects in the memory."""

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._lost else f"depth {self.depth}"
        return f"<dgkit {self._title} in an emulated PCI BAR, served by the DPU guest, {state}>"


def _heard(connection: socket.socket, reader: IO[bytes], name: str, count: int) -> RingAnswer:
    """Return the answer of the other guest to the offer of a queue with `count` local regions.

    Raises:
        TestbedError: It has closed the connection, or has said nothing readable in time.
    """
    connection.settimeout(guest_pair.WAIT_S)
    try:
        line = reader.readline(_ANSWER)
    except OSError as error:
        raise TestbedError(
            f"the DPU guest does not say whether it serves {name!r}: {error}"
        ) from error
    if not line:
        raise TestbedError(f"the DPU guest cannot serve {name!r}: its own error says why")
    try:
        answer = decode_ring_answer(bytes.fromhex(line.decode()))
    except (ValueError, *UNREADABLE) as error:
        raise TestbedError(
            f"the DPU guest's answer for {name!r} cannot be read: {error}"
        ) from error
    if len(answer.locals) != count:
        raise TestbedError(
            f"the DPU guest's answer for {name!r} names {len(answer.locals)} regions, not {count}"
        )
    return answer


class BarGpuQueue(_BarQueue):
    """Queue that kernels of the host guest post to and the Arm cores serve; gpu_queue() opens it.

    Attributes:
        remote: Id by which kernels name the DPU guest's region.
    """

    _title = "GPU queue"

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
        self.depth, self.timeout = ring_depth(depth), timeout
        config = RingConfig(self.depth, timeout=timeout, trace=trace, index=1)
        super().__init__(device, local, ExportedRing.size_of(config))
        self._ring = ExportedRing(self._region, config)
        try:
            answer = self._offer(name, "", trace=trace)
        except BaseException:
            self.close()
            raise
        self.remote, self._ids = answer.remote, answer.locals
        self._watch()

    def id_of(self, region: Region) -> int:
        """Return the id by which kernels name a region of this guest.

        Raises:
            KeyError: The queue was not opened with it.
        """
        return self._ids[self._index_of(region)]

    @property
    def completed(self) -> int:
        """Number of complete operations: all up to the first that is not complete."""
        return self._open_ring().words()[1]

    @property
    def first_error(self) -> tuple[Status, int | None]:
        """Status and ticket of the first failed operation; OK and None if none failed.

        PEER_LOST and the first operation that is not complete if the process that served the queue
        was killed.
        """
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
        self._check_open()
        return self._ring

    def _end(self) -> None:
        if self._lost:
            self._ring.lose()

    def _release(self) -> None:
        self._ring.release()


class BarVerbsQueue(_BarQueue):
    """Queue pair of a software NIC on the Arm cores; gpu_queue(doorbell=...) opens it.

    A kernel gets it as one pointer, `doca_gpu_dev_verbs_qp *`, and calls GPUNetIO's functions.

    Attributes:
        remote: Key of the DPU guest's region.
        number: Its number in the NIC.
    """

    handle_layout = VerbsQueue.handle_layout
    timeout = 0.0
    _title = "queue pair"

    def __init__(
        self, name: str, device: Device, local: Sequence[Region], *, depth: int, doorbell: str
    ) -> None:
        self.config = VerbsQueueConfig(depth, 0, doorbell, 0, False)
        self.depth = depth
        super().__init__(device, local, self.config.offsets[-1])
        try:
            answer = self._offer(name, doorbell, trace=False)
        except BaseException:
            self.close()
            raise
        self.number = answer.number
        self.remote = NicKey(answer.remote, answer.address, answer.size, None)
        self._keys = [
            NicKey(number, region.address, region.size, region)
            for number, region in zip(answer.locals, local, strict=True)
        ]
        self._watch()

    def key_of(self, region: Region) -> NicKey:
        """Return the key of a region of this guest.

        Raises:
            KeyError: The queue was not opened with it.
        """
        return self._keys[self._index_of(region)]

    def completions(self) -> list[bytes]:
        """Return a copy of the ring of completion queue entries."""
        self._check_open()
        at, _, end, _, _ = self.config.offsets
        return [bytes(self._memory.buffer[i : i + 64]) for i in range(at, end, 64)]

    def _end(self) -> None:
        syndrome = _RETRIES if self._lost else _FLUSHED
        self.config.fail(self._memory.buffer, self.number, syndrome)


class ServedQueue(Closable):
    """A queue of the host guest, served by these Arm cores. serve_gpu_queue() returns it.

    Attributes:
        region: Region into which its kernels put, and from which they get.
        queue_pair: Queue pair of the software NIC, for queue_report(); None: dgkit's own ring.
    """

    def __init__(self, device: Device, region: Region, offer: RingOffer) -> None:
        self.region, self._closing = region, threading.Lock()
        self._last_count: int | None = None  # None: it is open
        self.queue_pair: VerbsQueue | None = None
        with contextlib.ExitStack() as undo:
            try:
                self._connection = socket.create_connection((ADDRESSES["host"], offer.port))
            except OSError as error:
                raise PeerLost(f"the process that offered the queue has ended: {error}") from None
            undo.callback(self._hang_up)
            _keep_alive(self._connection)
            imports = [
                undo.enter_context(device.import_region(token))
                for token in (offer.ring, *offer.locals)
            ]
            serve = self._serve_pair if offer.doorbell else self._serve_ring
            answer, self._count = serve(undo, device, imports, offer)
            try:
                self._connection.sendall(encode(answer).hex().encode() + b"\n")
            except OSError as error:
                raise PeerLost(f"the process that offered the queue has ended: {error}") from None
            self._last_to_first = undo.pop_all()
        threading.Thread(target=self._follow, name="dgkit-doorbell", daemon=True).start()

    def _serve_ring(
        self,
        undo: contextlib.ExitStack,
        device: Device,
        imports: list[RemoteRegion],
        offer: RingOffer,
    ) -> tuple[RingAnswer, Callable[[], int]]:
        """Have a proxy serve dgkit's ring; return the answer, and a function counting records."""
        ring, *peers = imports
        own = undo.enter_context(device.import_region(self.region.export()))
        proxy = Proxy(device, _SPIN_US)
        undo.callback(proxy.close)
        config = RingConfig(offer.depth, trace=offer.trace, index=1)
        served = ImportedRing(proxy, ring, config, own=self.region, own_import=own, peers=peers)
        undo.callback(served.close)
        answer = RingAnswer(
            ring=offer.ring, remote=self.region.id, locals=[peer.id for peer in peers]
        )
        return answer, lambda: proxy.stats().records

    def _serve_pair(
        self,
        undo: contextlib.ExitStack,
        device: Device,
        imports: list[RemoteRegion],
        offer: RingOffer,
    ) -> tuple[RingAnswer, Callable[[], int]]:
        """Have a software NIC serve a queue pair. Returns as _serve_ring()."""
        held = [undo.enter_context(contextlib.closing(HeldMemory(each))) for each in imports]
        local = [
            undo.enter_context(device.register(place, remote.access))
            for place, remote in zip(held[1:], imports[1:], strict=True)
        ]
        nic = undo.enter_context(device.nic(spin_us=_SPIN_US))
        keys = [
            nic.key(region, str(region.access), address=start).number
            for region, start in zip(local, offer.starts[1:], strict=True)
        ]
        key = nic.key(self.region, str(self.region.access))
        config = VerbsQueueConfig(offer.depth, 0, offer.doorbell, 0, False)
        queue = undo.enter_context(VerbsQueue(nic, config, held[0], offer.starts[0]))
        peer = undo.enter_context(nic.queue_pair(2))
        queue.connect(peer)
        peer.connect(queue)
        self.queue_pair = queue
        answer = RingAnswer(
            ring=offer.ring, remote=key.number, locals=keys, number=queue.number,
            address=key.address, size=key.size,
        )  # fmt: skip
        return answer, lambda: nic.stats().entries

    def _follow(self) -> None:
        """Close the queue when the host guest's process has closed it or has ended."""
        with contextlib.suppress(OSError):
            self._connection.recv(1)
        self.close()

    @property
    def records(self) -> int:
        """Number of records, or of work queue entries, that the Arm cores have taken."""
        with self._closing:  # the other guest may close it at any time
            return self._count() if self._last_count is None else self._last_count

    def close(self) -> None:
        """End every operation and every wait of a kernel, and release the memory. Idempotent."""
        with self._closing:
            if self._last_count is None:
                self._last_count = self._count()
            self._last_to_first.close()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError), self._connection:
            self._connection.sendall(_CLOSED)
            self._connection.shutdown(socket.SHUT_RDWR)  # also wakes _follow()


def gpu_queue(
    name: str,
    device: Device,
    local: Sequence[Region],
    *,
    depth: int = 64,
    trace: bool = False,
    timeout: float = 60.0,
    doorbell: str | None = None,
) -> BarGpuQueue | BarVerbsQueue:
    """In the host guest, open a queue for kernels and wait until the Arm cores serve it.

    Args:
        name: Name under which the DPU guest calls serve_gpu_queue(), as for share().
        device: Device("soft").
        local: Up to four of its regions, of `dgkit.empty(on="bar")`: kernels put from there.
        depth: Maximum number of operations posted and not complete.
        trace: Store time stamps for each operation.
        timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.
        doorbell: Open a queue pair of the software NIC instead, for GPUNetIO's functions, with this
            doorbell of Nic.queue_pair(): "proxy", "record" or "no record". Its waits have no
            trace and no time limit of their own, and depth is a power of two.

    Raises:
        TestbedError: Nothing served it in two minutes; or this process runs in no guest.
        ValueError: A region is not in the BAR, or there are none or too many; or an argument of a
            queue pair is invalid.
    """
    guest_pair.guest()
    if not 1 <= len(local) <= _LOCALS:
        raise ValueError(f"{len(local)} local regions were given; there are 1 to {_LOCALS}")
    for region in local:
        if getattr(region.memory, "emulated", "") != "bar":
            raise ValueError(f"{region!r} is not of dgkit.empty(on='bar'): Arm cannot reach it")
    if doorbell is None:
        return BarGpuQueue(name, device, local, depth=depth, trace=trace, timeout=timeout)
    if trace:
        raise ValueError("trace=True is of dgkit's own queue: a queue pair has no time stamps")
    return BarVerbsQueue(name, device, local, depth=depth, doorbell=doorbell)


def serve_gpu_queue(
    name: str, device: Device, region: Region, *, timeout: float = guest_pair.WAIT_S
) -> ServedQueue:
    """In the DPU guest, serve the queue that the host guest opens under a name; wait for it.

    Args:
        device: Device("soft").
        region: Its region, into which kernels may put, and from which they may get.
        timeout: Seconds.

    Raises:
        TestbedError: None was opened in that time; or this process runs in no guest.
    """
    guest_pair.guest()

    def use(raw: bytes) -> ServedQueue:
        try:
            offer = decode_ring_offer(raw)
        except UNREADABLE as error:
            raise TestbedError(f"what is offered as {name!r} cannot be read: {error}") from error
        if len(offer.starts) != 1 + len(offer.locals):
            raise TestbedError(f"what is offered as {name!r} has {len(offer.starts)} addresses")
        return ServedQueue(device, region, offer)

    return guest_pair.latest("queue", name, timeout, f"no GPU queue {name!r} was opened", use)


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel end a connection whose other machine does not answer."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
