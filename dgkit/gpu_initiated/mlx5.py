# SPDX-License-Identifier: Apache-2.0
"""Decoder of the entries of an mlx5 queue pair: work queue entries and completion queue entries.

The formats are those of the ConnectX adapters (Linux, include/linux/mlx5/qp.h and
providers/mlx5/mlx5dv.h of rdma-core); numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

WQE_SIZE = CQE_SIZE = 64
_SEGMENT = 16
OPCODES = {
    0x00: "NOP", 0x01: "SEND_INVAL", 0x08: "WRITE", 0x09: "WRITE_IMM", 0x0A: "SEND",
    0x0B: "SEND_IMM", 0x0F: "WAIT", 0x10: "READ", 0x11: "COMPARE_SWAP", 0x12: "FETCH_ADD",
    0x14: "MASKED_COMPARE_SWAP", 0x15: "MASKED_FETCH_ADD", 0x23: "DUMP", 0x25: "UMR",
}  # fmt: skip
_REMOTE = frozenset({0x08, 0x09, 0x10, 0x11, 0x12, 0x14, 0x15})  # have a remote address segment
_ATOMIC = frozenset({0x11, 0x12, 0x14, 0x15})
_IMMEDIATE = frozenset({0x09, 0x0B})
_WAIT, _UMR = 0x0F, 0x25
_INLINE = 1 << 31
# Opcodes of completions.
_SENT, _RESPONDER, _ERRORS, _INVALID = 0, (1, 2, 3, 4), (13, 14), 15
COMPLETIONS = {
    0: "send queue", 1: "WRITE_IMM received", 2: "SEND received", 3: "SEND_IMM received",
    4: "SEND received, key invalidated", 13: "send error", 14: "receive error", 15: "not written",
}  # fmt: skip
# Syndromes of error completions (enum mlx5_cqe_syndrome).
SYNDROMES = {
    0x01: "local length error", 0x02: "local queue pair operation error",
    0x04: "local protection error", 0x05: "flushed", 0x06: "memory window bind error",
    0x10: "bad response", 0x11: "local access error", 0x12: "remote invalid request",
    0x13: "remote access error", 0x14: "remote operation error", 0x15: "retries exceeded",
    0x16: "receiver not ready, retries exceeded", 0x22: "remote abort",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """One data segment: bytes in the entry itself, or local memory.

    Attributes:
        size: Bytes; a size of 0 in the segment means 2 GiB.
        key: Local key; None if the bytes are in the entry.
        address: Local address; None if the bytes are in the entry.
    """

    size: int
    key: int | None
    address: int | None

    def __str__(self) -> str:
        if self.key is None:
            return f"{self.size:,} B inline"
        return f"{self.size:,} B at {self.address:#x}, key {self.key:#x}"


@dataclass(frozen=True, slots=True)
class WorkEntry:
    """Decoded work queue entry (WQE).

    Attributes:
        index: 16-bit index that its writer stored.
        qpn: Queue pair's number.
        opcode: Number of the operation; `name` is its name.
        segments: 16-byte segments, of which the entry consists.
        signaled: Whether a completion is requested.
        fence: Whether it waits for earlier operations.
        remote: Remote address and key, or None.
        immediate: Immediate value, or None.
        operands: Of an atomic operation: the value to add or to store, and the one to compare
            with. Of WAIT: the index of a completion, and the number of its queue.
        data: Data segments.
    """

    index: int
    qpn: int
    opcode: int
    segments: int
    signaled: bool
    fence: bool
    remote: tuple[int, int] | None
    immediate: int | None
    operands: tuple[int, int] | None
    data: tuple[Piece, ...]

    @property
    def name(self) -> str:
        """Name of the operation."""
        return OPCODES.get(self.opcode, f"opcode {self.opcode:#04x}")

    def __str__(self) -> str:
        parts = [f"{self.index:5} {self.name}"]
        if self.opcode == _WAIT and self.operands:
            parts.append(f"for completion {self.operands[0]} of queue {self.operands[1]:#x}")
        elif self.operands:
            parts.append(f"operand {self.operands[0]:#x}, compare {self.operands[1]:#x}")
        parts += [str(piece) for piece in self.data]
        if self.remote:
            parts.append(f"remote {self.remote[0]:#x}, key {self.remote[1]:#x}")
        if self.immediate is not None:
            parts.append(f"immediate {self.immediate:#x}")
        parts += [word for word, yes in (("signaled", self.signaled), ("fence", self.fence)) if yes]
        return "; ".join(parts)


def decode_wqe(entry: bytes) -> WorkEntry:
    """Decode a work queue entry.

    Args:
        entry: 64 bytes, or more if the entry spans several blocks of 64 bytes.

    Raises:
        ValueError: It has fewer than 64 bytes.
    """
    if len(entry) < WQE_SIZE:
        raise ValueError(f"entry has {len(entry)} bytes; a work queue entry has {WQE_SIZE}")
    first, second, flags, immediate = struct.unpack_from(">IIII", entry)
    opcode, segments = first & 0xFF, second & 0x3F
    at, remote, operands = _SEGMENT, None, None
    if opcode in _REMOTE:
        remote = struct.unpack_from(">QI", entry, at)
        at += _SEGMENT
    if opcode in _ATOMIC:
        operands = struct.unpack_from(">QQ", entry, at)
        at += _SEGMENT
    elif opcode == _WAIT:
        limit, number = struct.unpack_from(">8xII", entry, at)
        operands, at = (limit, number & 0xFFFFFF), len(entry)
    elif opcode == _UMR:
        at = len(entry)  # its segments describe a key
    data = _pieces(entry[: segments * _SEGMENT], at)
    return WorkEntry(
        index=first >> 8 & 0xFFFF, qpn=second >> 8, opcode=opcode, segments=segments,
        signaled=flags & 0xC == 0x8, fence=bool(flags & 0xE0), remote=remote,
        immediate=immediate if opcode in _IMMEDIATE else None, operands=operands, data=data,
    )  # fmt: skip


def _pieces(entry: bytes, at: int) -> tuple[Piece, ...]:
    """Return the data segments from `at` on."""
    found = []
    while at + _SEGMENT <= len(entry):
        size, key, address = struct.unpack_from(">IIQ", entry, at)
        if size & _INLINE:
            size &= _INLINE - 1
            found.append(Piece(size, None, None))
            at += (4 + size + _SEGMENT - 1) // _SEGMENT * _SEGMENT
        else:
            found.append(Piece(size or _INLINE, key, address))
            at += _SEGMENT
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CompletionEntry:
    """Decoded completion queue entry (CQE).

    Attributes:
        opcode: Kind of the completion; `name` is its name.
        owner: Owner bit: the lap of the ring in which the entry was written.
        qpn: Queue pair's number.
        index: 16-bit index of the work queue entry that it completes.
        size: Bytes that arrived.
        immediate: Immediate value, or None.
        syndrome: Cause of an error, or None; `error` is its name.
    """

    opcode: int
    owner: int
    qpn: int
    index: int
    size: int
    immediate: int | None
    syndrome: int | None

    @property
    def written(self) -> bool:
        """True if a NIC has written the entry."""
        return self.opcode != _INVALID

    @property
    def name(self) -> str:
        """Name of the kind."""
        return COMPLETIONS.get(self.opcode, f"opcode {self.opcode}")

    @property
    def error(self) -> str | None:
        """Name of the syndrome, or None."""
        if self.syndrome is None:
            return None
        return SYNDROMES.get(self.syndrome, f"syndrome {self.syndrome:#04x}")

    def __str__(self) -> str:
        if not self.written:
            return self.name
        parts = [f"{self.index:5} {self.name}, lap bit {self.owner}"]
        if self.opcode in _RESPONDER:
            parts.append(f"{self.size:,} B")
        if self.immediate is not None:
            parts.append(f"immediate {self.immediate:#x}")
        if self.syndrome is not None:
            parts.append(f"{self.error} ({self.syndrome:#04x})")
        return "; ".join(parts)


def decode_cqe(entry: bytes) -> CompletionEntry:
    """Decode a completion queue entry of 64 bytes.

    Raises:
        ValueError: It has another size.
    """
    if len(entry) != CQE_SIZE:
        raise ValueError(f"entry has {len(entry)} bytes; a completion queue entry has {CQE_SIZE}")
    immediate, size = struct.unpack_from(">I4xI", entry, 36)
    qpn, index = struct.unpack_from(">IH", entry, 56)
    opcode = entry[63] >> 4
    return CompletionEntry(
        opcode=opcode, owner=entry[63] & 1, qpn=qpn & 0xFFFFFF, index=index, size=size,
        immediate=immediate if opcode in (1, 3) else None,
        syndrome=entry[55] if opcode in _ERRORS else None,
    )  # fmt: skip
