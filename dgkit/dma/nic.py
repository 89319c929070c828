# SPDX-License-Identifier: Apache-2.0
"""Software NIC: a thread that executes mlx5 work queue entries, which kernels write to rings."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import threading
import warnings
from dataclasses import dataclass

from ..errors import ClosedError, DgkitError
from ..files import Fd
from ..live_set import LiveSet
from ..unique import Unique
from ..validate import whole
from ._ffi import check, ffi, last_error, lib, open_handle, spin_ns
from .gpu_queue import HandleLayout, KernelQueue
from .region import Region

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from ._ffi import native as core
    from .context import DeviceContext
    from .held_memory import HeldMemory

# The producer index of a doorbell record has 16 bits, one of them the lap.
_ENTRIES_MAX = lib.DG_NIC_ENTRIES_MAX
_WQE = _CQE = 64
_RECEIVE = 16
_UNIT = 4096  # of the layout, which the machines of a testbed share: no page size
_NOT_WRITTEN = 15 << 4 | 1  # op_own of a completion queue entry before its first use
_DOORBELLS = {"proxy": "DG_NIC_PROXY", "record": "DG_NIC_RECORD", "no record": "DG_NIC_NO_RECORD"}
_STATES = {0: "reset", 1: "init", 2: "ready to receive", 3: "ready to send", 6: "error"}
_WAITS = (
    "", "a completion", "a receive of the peer", "its bytes", "the import of a key",
    "the peer to be ready",
)  # fmt: skip
_ACCESS = {"r": 4, "w": 1 | 2 | 8, "rw": 1 | 2 | 4 | 8}  # enum dg_nic_access


def _domain(number: int) -> int:
    """Return the number of a protection domain.

    Raises:
        ValueError: It has more than 32 bits.
    """
    if whole("domain", number, 0) > 0xFFFFFFFF:
        raise ValueError(f"domain is {number}; it has at most 32 bits")
    return number


@dataclass(frozen=True, slots=True)
class AdapterProcess:
    """Process that has the software adapter of `dgkit mlx5` open.

    Attributes:
        pid: The process; 0 if it did not answer.
        queue_pairs: Its open queue pairs.
        keys: Its registered regions.
        why: Why it did not answer, or "".
    """

    pid: int
    queue_pairs: int
    keys: int
    why: str = ""


def adapter_processes(device: DeviceContext) -> list[AdapterProcess]:
    """Return the processes of this user that have the software adapter open.

    Args:
        device: Device of the provider `soft`.
    """
    found = []
    info = ffi.new("dg_nic_part_info *")
    for part in range(lib.DG_NIC_PARTS):
        rc = lib.dg_nic_part_info_get(device._handle(), part, info)
        if rc == 0:
            found.append(AdapterProcess(info.pid, info.queue_pairs, info.keys))
        elif rc != -errno.ENOTCONN:
            found.append(AdapterProcess(0, 0, 0, last_error()))
    return found


@dataclass(frozen=True, slots=True)
class NicStats:
    """Counts of a software NIC.

    Attributes:
        passes: Passes over all queue pairs; `idle` of them found nothing to do.
        sleeps: Sleeps between idle passes.
        entries: Work queue entries executed.
        bytes: Bytes moved by them.
        completions: Completion queue entries written, `errors` of them for errors.
        queue_pairs: Queue pairs that are open.
        keys: Memory keys that are open.
    """

    passes: int
    idle: int
    sleeps: int
    entries: int
    bytes: int
    completions: int
    errors: int
    queue_pairs: int
    keys: int


@dataclass(frozen=True, slots=True)
class NicKey:
    """Memory key of a region, for local and for remote access. Created by `Nic.key`.

    Attributes:
        number: The key.
        address: Address by which entries name the region's first byte.
        size: Size of the region in bytes.
        region: The region, which the NIC keeps as long as the key; None: it is another process's.
    """

    number: int
    address: int
    size: int
    region: Region | None

    @property
    def big_endian(self) -> int:
        """The key as entries and GPUNetIO's `doca_gpu_dev_verbs_addr` contain it."""
        return int.from_bytes(self.number.to_bytes(4, "little"), "big")


@dataclass(frozen=True, slots=True)
class VerbsQueueInfo:
    """State of a queue pair.

    Attributes:
        state: "reset", "init", "ready to receive", "ready to send" or "error".
        posted: Places of the ring that kernels have reserved, and
        polled: completions of the send queue that they have consumed; both None if the structure
            that counts them is in GPU memory.
        producer: Work queue entries that the doorbell has announced.
        taken: Work queue entries that the NIC has taken; `completed` of them are complete.
        completions: Completion queue entries that it has written for the send queue.
        received: Receives that are complete, of `posted_receives`.
        waiting: What the next entry waits for; "" if nothing.
        syndrome: Syndrome of the first error completion, or None.
        why: Cause of that error: the value and the limit.
        operations: Number of executed entries by opcode.
    """

    state: str
    posted: int | None
    polled: int | None
    producer: int
    taken: int
    completed: int
    completions: int
    received: int
    posted_receives: int
    waiting: str
    syndrome: int | None
    why: str
    operations: dict[int, int]


class Nic(Unique):
    """Thread that executes the work queue entries of queue pairs. Opened by `Device.nic`.

    Entries, completions and doorbells have the formats of mlx5 adapters, so NVIDIA's device headers
    of GPUNetIO, and dgkit's own, post to it. It moves bytes by the device's provider: no network
    adapter is involved.

    Args:
        device: Device that moves the bytes.
        spin_us: How long the thread spins when all queues are idle, in microseconds.
    """

    def __init__(self, device: DeviceContext, spin_us: float) -> None:
        self._n: core.Handle | None = None  # first: freed before the regions of keys
        self.device, self._pid = device, os.getpid()
        self._using = threading.RLock()
        self._queues: LiveSet[VerbsQueue] = LiveSet()
        self._keys: dict[int, NicKey] = {}
        args = device._handle(), spin_ns(spin_us)
        open_handle(self, "_n", "dg_nic", (device._d,), lib.dg_nic_open, *args)

    @property
    def using(self) -> threading.RLock:
        """Lock for calls to the NIC and its queue pairs, which another thread may close."""
        if self._pid != os.getpid():  # forked: another thread of the parent may hold the lock
            self._pid, self._using = os.getpid(), threading.RLock()
        return self._using

    def _handle(self) -> core.dg_nic:
        if self._n is None:
            raise ClosedError("this software NIC is closed")
        self.device._handle()
        nic: core.dg_nic = self._n.c
        return nic

    @property
    def closed(self) -> bool:
        """True if the NIC is closed."""
        return self._n is None

    @property
    def gid(self) -> bytes:
        """Address of the NIC on this machine: 16 bytes."""
        raw = ffi.new("uint8_t[16]")
        with self.using:
            check(lib.dg_nic_gid_get(self._handle(), raw))
        return bytes(raw)

    def stats(self) -> NicStats:
        """Return the counts so far."""
        s = ffi.new("dg_nic_stats *")
        with self.using:
            check(lib.dg_nic_stats_get(self._handle(), s))
        return NicStats(
            s.passes, s.idle, s.sleeps, s.entries, s.bytes, s.cqes, s.errors, s.queue_pairs, s.keys
        )

    def key(
        self,
        region: Region,
        access: str = "rw",
        *,
        domain: int = 0,
        address: int | None = None,
    ) -> NicKey:
        """Give a region a memory key.

        Args:
            region: Region of the NIC's device, which stays open as long as the key.
            access: What entries may do: "r", "w" or "rw", at most what the region permits.
            domain: Protection domain: queue pairs of other domains cannot use the key.
            address: Address by which entries name the region's first byte; None: its own.

        Raises:
            ValueError: The access is unknown, or the region belongs to another device.
            AccessDenied: The region does not permit the access.
        """
        if access not in _ACCESS:
            raise ValueError(f"access is {access!r}; it must be one of: {', '.join(_ACCESS)}")
        if not isinstance(region, Region):
            raise TypeError(f"region is {region!r}; it must be a region of Device.register")
        if region.device is not self.device:
            raise ValueError(f"{region!r} belongs to another device than the NIC: {self.device!r}")
        if region.closed:
            raise ClosedError(f"{region!r} is closed")
        at = region.address if address is None else whole("address", address)
        out = ffi.new("uint32_t *")
        with self.using:
            args = region._r.c, at, _domain(domain), _ACCESS[access], out
            check(lib.dg_nic_key_open(self._handle(), *args))
            key = self._keys[int(out[0])] = NicKey(int(out[0]), at, region.size, region)
        return key

    def close_key(self, key: NicKey) -> None:
        """Revoke a key: entries that name it end with a protection or access error."""
        with self.using:
            check(lib.dg_nic_key_close(self._handle(), key.number))
            self._keys.pop(key.number, None)

    def queue_pair(
        self,
        entries: int = 128,
        *,
        receives: int = 0,
        doorbell: str = "proxy",
        domain: int = 0,
        inline_receive: bool = False,
    ) -> VerbsQueue:
        """Open a queue pair with its completion queues, in memory that kernels share.

        Args:
            entries: Work queue entries of 64 bytes: a power of two, 2 to 32,768.
            receives: Receive entries: a power of two, or 0.
            doorbell: "proxy": kernels store a producer index that the CPU reads. "record": they
                update a doorbell record. "no record": the NIC reads the index in the queue's
                structure.
            domain: Protection domain of the keys that it may use.
            inline_receive: Received data of up to 32 bytes lies in the completion itself.

        Raises:
            ValueError: A number or name is invalid.
        """
        config = VerbsQueueConfig(entries, receives, doorbell, domain, inline_receive)
        return VerbsQueue(self, config)

    def close(self) -> None:
        """Close the queue pairs and the keys, and stop the thread. Idempotent."""
        with self.using:
            for queue in self._queues:
                queue.close()
            nic, self._n = self._n, None
            if nic is not None:
                nic.free()
            self._keys.clear()

    def __enter__(self) -> Nic:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_n", None) is not None:
            if self._pid == os.getpid():
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
            with contextlib.suppress(DgkitError):
                self.close()

    def __repr__(self) -> str:
        state = "closed" if self._n is None else "open"
        return f"<dgkit.Nic on {self.device.provider}, software, {state}>"


@dataclass(frozen=True, slots=True)
class VerbsQueueConfig:
    """Configuration of a queue pair; see `Nic.queue_pair`.

    Raises:
        ValueError: A number or name is invalid.
    """

    entries: int
    receives: int
    doorbell: str
    domain: int
    inline_receive: bool

    def __post_init__(self) -> None:
        for name, least in (("entries", 2), ("receives", 0)):
            n = whole(name, getattr(self, name), least)
            if n > _ENTRIES_MAX or n & (n - 1):
                raise ValueError(f"{name} is {n}; it must be a power of two up to {_ENTRIES_MAX:,}")
        if self.doorbell not in _DOORBELLS:
            known = ", ".join(map(repr, _DOORBELLS))
            raise ValueError(f"doorbell is {self.doorbell!r}; it must be one of: {known}")
        _domain(self.domain)

    @property
    def offsets(self) -> tuple[int, int, int, int, int]:
        """Offsets of the completions of sends and of receives, of both rings, and the size."""
        sizes = (_CQE * self.entries, _CQE * self.receives, _WQE * self.entries)
        at = [_UNIT]
        for size in sizes:
            at.append(at[-1] + size)
        end = at[-1] + _RECEIVE * self.receives
        return at[0], at[1], at[2], at[3], -(-end // _UNIT) * _UNIT

    def clear(self, memory: mmap.mmap | memoryview) -> None:
        """Zero a queue pair's memory and mark all completions as not written.

        The structure is empty until dg_nic_qp_lay_out() fills it.
        """
        completions, _, sends, _, size = self.offsets
        memory[:size] = bytes(size)
        count = self.entries + self.receives
        memory[completions + _CQE - 1 : sends : _CQE] = bytes([_NOT_WRITTEN]) * count

    def fail(self, memory: memoryview, number: int, syndrome: int) -> None:
        """Store an error completion for each entry that has none and will have none.

        Args:
            memory: Memory of a queue pair that no NIC serves any more.
            syndrome: The cause, as in a completion.
        """
        (polled,) = struct.unpack_from("<Q", memory, VerbsQueue._POLLED)
        for index in range(polled, polled + self.entries):
            at = self.offsets[0] + index % self.entries * _CQE
            owner, last = int(bool(index & self.entries)), memory[at + _CQE - 1]
            if last >> 4 == 15 or last & 1 != owner:
                memory[at + 55 : at + 56] = bytes([syndrome])
                memory[at + 56 : at + 60] = number.to_bytes(4, "big")
                memory[at + 60 : at + 64] = struct.pack(">HBB", index & 0xFFFF, 0, 13 << 4 | owner)


class VerbsQueue(KernelQueue):
    """Queue pair in mlx5's format. Created by `Nic.queue_pair`.

    A kernel gets it as one pointer, `doca_gpu_dev_verbs_qp *`, and calls GPUNetIO's device
    functions (doca_gpunetio_dev_verbs_onesided.cuh and its siblings).

    Args:
        nic: NIC that serves the queue.
        config: Sizes and doorbell.
        place: Memory of another process, for its kernels; None: new memory of this process.
        seen_at: Address at which these kernels see it.
    """

    handle_layout = HandleLayout(296, (8, 9, 10, 15, 16, 20, 22, 28, 30))
    # The structure, then the doorbell record and the doorbell.
    _RECORD, _DOORBELL = 512, 576
    _POSTED, _POLLED = 0, 184  # in the structure

    def __init__(
        self,
        nic: Nic,
        config: VerbsQueueConfig,
        place: HeldMemory | None = None,
        seen_at: int | None = None,
    ) -> None:
        # Each keeps what it needs, so that the memory is freed last even if close() is interrupted.
        self._qp: core.Handle | None = None
        self._send_cq: core.Handle | None = None
        self._receive_cq: core.Handle | None = None
        super().__init__()
        self.nic, self.config, self._pid = nic, config, os.getpid()
        self.depth, self.weak, self.timeout = config.entries, False, 60.0
        self._seen_at = seen_at
        self._file = Fd(os.memfd_create, "dgkit-verbs-queue", os.MFD_CLOEXEC)
        self._mapped = True
        try:
            self._memory = place.buffer if place else self._map(config.offsets[-1])
            self._raw = ffi.from_buffer("char[]", self._memory)
            self._open()
        except BaseException:
            self.close()
            raise
        self.number = int(self._info().qpn)
        with nic.using:
            nic._queues.add(self)

    def _map(self, size: int) -> mmap.mmap | memoryview:
        os.posix_fallocate(self._file.number, 0, size)
        return mmap.mmap(self._file.number, size)

    def _lay_out(self) -> None:
        check(lib.dg_nic_qp_lay_out(self._handle(), self._raw))
        if self._seen_at is None:
            return
        moved = self._seen_at - int(ffi.cast("uintptr_t", self._raw))
        words = ffi.cast("uint64_t *", self._raw)
        for i in self.handle_layout.addresses:
            words[i] = words[i] + moved if words[i] else 0

    def _open(self) -> None:
        self.config.clear(self._memory)
        completions, received, sends, receives, _ = self.config.offsets
        raw = ffi.new("dg_nic_qp_config *")
        raw.send_ring, raw.send_entries = self._raw + sends, self.config.entries
        raw.send_cq = self._open_cq("_send_cq", completions, self.config.entries)
        if self.config.receives:
            raw.receive_ring, raw.receive_entries = self._raw + receives, self.config.receives
            raw.receive_sges = 1
            raw.receive_cq = self._open_cq("_receive_cq", received, self.config.receives)
        raw.record = ffi.cast("uint32_t *", self._raw + self._RECORD)
        raw.doorbell = ffi.cast("uint64_t *", self._raw + self._DOORBELL)
        raw.producer = ffi.cast("uint64_t *", self._raw + 16)  # sq_wqe_pi
        raw.doorbell_mode = getattr(lib, _DOORBELLS[self.config.doorbell])
        raw.pd, raw.inline_receive = self.config.domain, self.config.inline_receive
        parents = self._send_cq, self._receive_cq, self._raw
        args = self.nic._handle(), raw
        open_handle(self, "_qp", "dg_nic_qp", parents, lib.dg_nic_qp_open, *args)
        self._lay_out()

    def _open_cq(self, name: str, offset: int, entries: int) -> Any:
        raw = ffi.new("dg_nic_cq_config *")
        raw.ring, raw.entries = self._raw + offset, entries
        parents = self.nic._n, self._raw
        args = self.nic._handle(), raw
        open_handle(self, name, "dg_nic_cq", parents, lib.dg_nic_cq_open, *args)
        return getattr(self, name).c

    def _handle(self) -> core.dg_nic_qp:
        if self._qp is None:
            raise ClosedError("this queue pair is closed")
        self.nic._handle()
        qp: core.dg_nic_qp = self._qp.c
        return qp

    def _info(self) -> core.dg_nic_qp_info:
        raw = ffi.new("dg_nic_qp_info *")
        with self.nic.using:
            check(lib.dg_nic_qp_info_get(self._handle(), raw))
        return raw

    def _shared_memory(self) -> tuple[int, int, int, int]:
        self._handle()
        address = int(ffi.cast("uintptr_t", self._raw))
        return self._file.number, self.config.offsets[-1], address, address

    @property
    def address(self) -> tuple[bytes, int]:
        """Address for a peer's `connect`: the NIC's gid, and the queue pair's number."""
        self._handle()
        return self.nic.gid, self.number

    def connect(self, peer: VerbsQueue | tuple[bytes, int], *, access: str = "rw") -> None:
        """Connect to a peer on this machine, which must connect to this queue pair in turn.

        It resets the queue pair first, also one in the error state: no kernel may use it meanwhile.

        Args:
            peer: The other queue pair, or its `address`.
            access: What the peer's entries may do with this side's keys of the queue's domain.

        Raises:
            ValueError: The address is malformed, or the access unknown.
            PeerLost: No NIC has this address.
        """
        gid, number = peer.address if isinstance(peer, VerbsQueue) else peer
        if len(gid) != 16 or not 0 <= whole("qpn", number) < 1 << 24:
            raise ValueError(f"peer is {peer!r}; it must be a gid of 16 bytes and a 24-bit number")
        if access not in _ACCESS:
            raise ValueError(f"access is {access!r}; it must be one of: {', '.join(_ACCESS)}")
        to = ffi.new("dg_nic_address *")
        to.gid, to.qpn = gid, number
        with self.nic.using:
            check(lib.dg_nic_qp_modify(self._handle(), lib.DG_NIC_RESET, to, 0))
            for cq in filter(None, (self._send_cq, self._receive_cq)):
                check(lib.dg_nic_cq_restart(cq.c))
            self.config.clear(self._memory)
            self._lay_out()
            self.handle_version += 1
            for state in (lib.DG_NIC_INIT, lib.DG_NIC_RTR, lib.DG_NIC_RTS):
                check(lib.dg_nic_qp_modify(self._handle(), state, to, _ACCESS[access]))

    def info(self) -> VerbsQueueInfo:
        """Return the state and the counts of this queue pair."""
        raw = self._info()
        failed = bool(raw.syndrome)
        posted, polled = self._kernel_counts()
        return VerbsQueueInfo(
            state=_STATES.get(raw.state, f"state {raw.state}"),
            posted=posted, polled=polled, producer=raw.doorbell,
            taken=raw.taken, completed=raw.completed, completions=raw.produced_cqes,
            received=raw.received, posted_receives=raw.posted_receives,
            waiting=_WAITS[raw.waiting], syndrome=int(raw.syndrome) if failed else None,
            why=ffi.string(raw.why).decode(errors="replace"),
            operations={i: int(n) for i, n in enumerate(raw.by_opcode) if n},
        )  # fmt: skip

    def _kernel_counts(self) -> tuple[int | None, int | None]:
        """Return the counts sq_rsvd_index and cq_sq.cqe_ci, which kernels write."""
        if self.nic.device.provider == "cuda":
            return None, None
        with self.nic.using:
            self._handle()
            posted, polled = (
                int.from_bytes(self._memory[at : at + 8], "little")
                for at in (self._POSTED, self._POLLED)
            )
        return posted, polled

    def entries(self) -> list[bytes]:
        """Return a copy of the ring of work queue entries, 64 bytes each."""
        at = self.config.offsets[2]
        return self._items(at, self.config.entries)

    def completions(self, *, receives: bool = False) -> list[bytes]:
        """Return a copy of the ring of completion queue entries, of sends or of receives."""
        at = self.config.offsets[int(receives)]
        return self._items(at, self.config.receives if receives else self.config.entries)

    def store(self, place: int | str, data: bytes) -> None:
        """Store bytes where a kernel does: into the ring, the doorbell record or the doorbell.

        Args:
            place: Place of an entry in the ring, "record" (the send counter) or "doorbell".
            data: At most 64 bytes of an entry, 4 of the record, 8 of the doorbell.

        Raises:
            ValueError: There is no such place, or the data is larger.
        """
        limits = {"record": (self._RECORD + 4, 4), "doorbell": (self._DOORBELL, 8)}
        if isinstance(place, int) and 0 <= place < self.config.entries:
            at, limit = self.config.offsets[2] + place * _WQE, _WQE
        elif place in limits:
            at, limit = limits[str(place)]
        else:
            last = self.config.entries - 1
            raise ValueError(f"place is {place!r}; it must be 0 to {last}, 'record' or 'doorbell'")
        if len(data) > limit:
            raise ValueError(f"data has {len(data)} bytes; place {place!r} has {limit}")
        with self.nic.using:
            self._handle()
            self._memory[at : at + len(data)] = data

    def _items(self, at: int, count: int) -> list[bytes]:
        with self.nic.using:
            self._handle()
            return [bytes(self._memory[i : i + _WQE]) for i in range(at, at + count * _WQE, _WQE)]

    @property
    def closed(self) -> bool:
        """True if the queue pair is closed."""
        return self._qp is None

    def close(self) -> None:
        """Close the queue pair: the NIC touches its memory no more. Idempotent."""
        with self.nic.using:
            for name in ("_qp", "_send_cq", "_receive_cq"):
                handle = getattr(self, name)
                setattr(self, name, None)  # first: `handle` is freed only once
                if handle is not None:
                    handle.free()
        if self._mapped:
            self._mapped = False
            self._free(self._unmap)

    def _unmap(self) -> None:
        if hasattr(self, "_raw"):
            ffi.release(self._raw)
        memory = getattr(self, "_memory", None)
        if isinstance(memory, mmap.mmap):
            memory.close()
        self._file.close()

    def __enter__(self) -> VerbsQueue:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_qp", None) is not None and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        if getattr(self, "_mapped", False):
            with contextlib.suppress(DgkitError):
                self.close()

    def __repr__(self) -> str:
        state = "closed" if self._qp is None else self.config.doorbell
        return f"<dgkit.VerbsQueue {getattr(self, 'number', 0):#x}, {self.depth} entries, {state}>"
