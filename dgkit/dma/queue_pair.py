# SPDX-License-Identifier: Apache-2.0
"""Queue pair that is connected manually to any program that uses libibverbs."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass

from ..errors import BoundsError, ClosedError
from ..live_set import LiveSet
from ..types import Access, parse_access
from ..unique import Unique
from ..validate import whole
from ._ffi import check, ffi, lib, open_handle
from .region import RemoteRegion

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .region import Region
    from .transfer import CompletionQueue


@dataclass(frozen=True, slots=True, repr=False)
class QueuePairAddress:
    """Numbers of a queue pair that the other side needs to connect to it.

    Attributes:
        qpn: Number of the queue pair; 24 bits.
        psn: Packet sequence number of the first packet that it sends; 24 bits.
        gid: Address of its port, 16 bytes; on Ethernet (RoCE) an IPv6 address, or an IPv4 address
            as ::ffff:1.2.3.4.
        gid_index: Index of `gid` in the port's table.
        lid: Local address of a port of InfiniBand; 0 on Ethernet.
        port: Number of the port, from 1.
        mtu: Active MTU of the port, in bytes.
        max_reads: How many RDMA reads from the other side it answers at a time
            (`max_dest_rd_atomic`).
    """

    qpn: int
    psn: int
    gid: bytes
    gid_index: int
    lid: int
    port: int
    mtu: int
    max_reads: int

    @property
    def gid_text(self) -> str:
        """`gid` as the text of an IPv6 address, which `QueuePair.connect` also accepts."""
        from socket import AF_INET6, inet_ntop

        return inet_ntop(AF_INET6, self.gid)

    def __repr__(self) -> str:
        return (
            f"QueuePairAddress(qpn={self.qpn}, psn={self.psn}, gid={self.gid_text}, "
            f"gid_index={self.gid_index}, lid={self.lid}, port={self.port}, mtu={self.mtu}, "
            f"max_reads={self.max_reads})"
        )


@dataclass(frozen=True, slots=True)
class RdmaMemory:
    """Memory that the peer of a queue pair may use.

    Attributes:
        address: Address of the first byte in the owner's process.
        size: Bytes.
        rkey: Key of the registration; 32 bits. It is valid for that peer alone.
        access: What the peer may do.
    """

    address: int
    size: int
    rkey: int
    access: Access


class QueuePair(Unique):
    """Queue pair that is connected manually. Created by `Queue.queue_pair`.

    Both sides open a queue pair, exchange `address` by any means, and connect. The peer may be
    any program that uses libibverbs. Memory is used by address and rkey, without descriptors.

    Like its queue, it is used by one thread at a time. An error puts it into the error state
    permanently: operations behind the failed one end as FLUSHED, and were not executed, or as
    PEER_LOST if the peer did not answer. Later operations raise PeerLost; open and connect another
    queue pair on both sides. The next operation detects that a peer has ended or is switched off.
    """

    def __init__(self, queue: CompletionQueue) -> None:
        self._p: Any = None
        self._closed = False
        self._queue = queue
        self._pid = os.getpid()
        self._imports: LiveSet[RemoteRegion] = LiveSet()
        self._peer: int | None = None
        open_handle(self, "_p", "dg_qp", (queue._q,), lib.dg_qp_open, queue._q.c)
        raw = ffi.new("dg_qp_address *")
        check(lib.dg_qp_address_get(self._handle(), raw))
        self.address = QueuePairAddress(
            raw.qpn, raw.psn, bytes(raw.gid), raw.gid_index, raw.lid, raw.port, raw.mtu,
            raw.max_reads,
        )  # fmt: skip

    @property
    def queue(self) -> CompletionQueue:
        """Queue that the queue pair belongs to."""
        return self._queue

    @property
    def closed(self) -> bool:
        """True if the queue pair or its queue is closed."""
        return self._closed or self._queue._closed

    def _handle(self) -> Any:
        if self.closed:
            raise ClosedError(f"queue pair {self.address.qpn} is closed")
        return self._p.c

    def connect(
        self,
        *,
        qpn: int,
        psn: int,
        gid: str | bytes,
        lid: int = 0,
        mtu: int | None = None,
        max_reads: int = 1,
    ) -> None:
        """Connect to a queue pair of the other side, which connects to this one.

        The state goes from INIT to RTR (ready to receive) to RTS (ready to send). This side does
        not wait for the other one, so exchange a message before the first operation.

        Args:
            qpn: Number of the other queue pair.
            psn: Packet sequence number of the first packet that the other side sends.
            gid: Address of its port: 16 bytes, or the text of an IPv6 address.
            lid: Its local address, on InfiniBand.
            mtu: Bytes of a packet, the same on both sides: 256, 512, 1024, 2048 or 4096; None for
                that of this side's port.
            max_reads: How many RDMA reads it answers at a time: its `max_dest_rd_atomic`.

        Raises:
            BoundsError: A number has too many bits, or `mtu` is larger than the port's.
            ValueError: `gid` or `mtu` is invalid, or the queue pair is connected already.
            Unsupported: `gid` cannot be reached from this port's network.
            PeerLost: `gid` does not answer there.
            DeviceUnavailable: The port has no link.
        """
        raw = ffi.new("dg_qp_address *")
        raw.qpn, raw.psn = _number("qpn", qpn, 24), _number("psn", psn, 24)
        raw.gid, raw.lid = _gid_bytes(gid), _number("lid", lid, 16)
        raw.mtu = 0 if mtu is None else _number("mtu", mtu, 32, least=1)
        raw.max_reads = _number("max_reads", max_reads, 8, least=1)
        check(lib.dg_qp_connect(self._handle(), raw))
        self._peer = raw.qpn

    def grant(self, region: Region, access: str | Access | None = None) -> RdmaMemory:
        """Let the peer use a region, until the region or this queue pair is closed.

        After `region.close()` the adapter refuses the peer. Each call creates another rkey.

        Args:
            region: Region of this queue's device.
            access: What the peer may do: `"r"`, `"w"` or `"rw"`; None for all that the region
                allows.

        Returns:
            The address, size and rkey that the peer needs.

        Raises:
            TypeError: `region` is not a region.
            AccessDenied: `access` would widen the region's.
            ValueError: The region is imported, or of another device.
            OutOfMemory: The adapter cannot pin the memory once more.
        """
        if not hasattr(region, "_r"):
            raise TypeError(f"region is {region!r:.60}; it must be a Region (Device.register)")
        flags = region.access if access is None else parse_access(access)
        handle = self._handle()
        if region.closed:
            raise ClosedError(f"{region!r} is closed")
        raw = ffi.new("dg_rdma_memory *")
        check(lib.dg_qp_grant(handle, region._r.c, int(flags), raw))
        return RdmaMemory(raw.address, raw.size, raw.rkey, Access(raw.access))

    def import_memory(
        self, *, address: int, size: int, rkey: int, access: str | Access = "rw"
    ) -> RemoteRegion:
        """Return the peer's memory as a remote region, for operations of this queue.

        The peer's adapter decides what is allowed: an operation with wrong numbers completes as
        REMOTE_ACCESS_ERROR, and puts the queue pair into the error state.

        Args:
            address: Address of the first byte in the peer's process.
            size: Bytes.
            rkey: Key of the peer's registration; 32 bits.
            access: What this side will do with the memory.

        Raises:
            BoundsError: `size` is 0, `rkey` has more than 32 bits, or the range exceeds 2^64.
        """
        memory = {
            "address": whole("address", address),
            "size": whole("size", size, 1),
            "rkey": _number("rkey", rkey, 32),
            "access": int(parse_access(access)),
        }
        region = QueuePairRegion(self, ffi.new("dg_rdma_memory *", memory))
        self._imports.add(region)
        return region

    def close(self) -> None:
        """Close the queue pair, its grants and its imports. Idempotent.

        Operations in flight on it complete as FLUSHED.

        Raises:
            QueueInUse: Another thread is using the queue.
        """
        if self._closed or self._p is None:
            return
        check(lib.dg_qp_close(self._p.c))
        self._closed = True
        for region in self._imports:
            region.close()

    def __enter__(self) -> QueuePair:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_p", None) is None or self.closed or self._pid != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)

    def _state(self) -> str:
        if self.closed:
            return "closed"
        return "not connected" if self._peer is None else f"connected to {self._peer}"

    def __repr__(self) -> str:
        if self._p is None:
            return "<dgkit.QueuePair, not opened>"
        provider = self._queue._device.provider
        return f"<dgkit.QueuePair {self.address.qpn} on {provider}, {self._state()}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import plural

        address = self.address
        rows: list[tuple[str, object]] = [
            ("Number (qpn)", address.qpn),
            ("First packet (psn)", address.psn),
            ("Port's address (gid)", f"{address.gid_text}, index {address.gid_index}"),
            ("MTU", plural(address.mtu, "byte")),
            ("State", self._state()),
        ]
        if address.lid:
            rows.insert(3, ("Local address (lid)", address.lid))
        return card("QueuePair", rows, badge=provider_badge(self._queue._device.provider))


class QueuePairRegion(RemoteRegion):
    """Memory of the peer of a queue pair. Created by `QueuePair.import_memory`."""

    __slots__ = ("_queue_pair",)

    def __init__(self, queue_pair: QueuePair, memory: Any) -> None:
        super(RemoteRegion, self).__init__(queue_pair.queue._device, None)
        self._queue_pair = queue_pair
        self._open(lib.dg_qp_import, queue_pair._handle(), memory)

    @property
    def lost(self) -> bool:
        """True if the queue pair is closed or in the error state."""
        return bool(self._info().lost)

    def _owner(self) -> str:
        number = self._queue_pair.address.qpn
        return f"the peer of queue pair {number}"


def _number(what: str, value: Any, bits: int, *, least: int = 0) -> int:
    """Return `value` as an int of that many bits.

    Raises:
        TypeError: Not an integer.
        BoundsError: Out of range.
    """
    number = whole(what, value, least)
    if number >> bits:
        limit = (1 << bits) - 1
        raise BoundsError(f"{what} is {number}; it has {bits} bits, so the limit is {limit}")
    return number


def _gid_bytes(gid: Any) -> bytes:
    """Return the 16 bytes of a GID. Raises TypeError or ValueError if invalid."""
    from ipaddress import IPv6Address

    what = "it must be 16 bytes or the text of an IPv6 address, as '::ffff:10.9.0.1'"
    try:
        if isinstance(gid, str) and "%" not in gid:
            return IPv6Address(gid).packed
        raw = bytes(memoryview(gid)) if not isinstance(gid, str) else b""
    except TypeError:
        raise TypeError(f"gid is {gid!r:.60}; {what}") from None
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"gid is {gid!r:.60}; {what}")
    return raw
