# SPDX-License-Identifier: Apache-2.0
"""Decoding of work queue entries and completion queue entries."""

from __future__ import annotations

import struct

import pytest

from dgkit.gpu_initiated.mlx5 import Piece, decode_cqe, decode_wqe


def control(opcode: int, segments: int, *, index: int = 7, flags: int = 8, imm: int = 0) -> bytes:
    """Return a control segment of queue pair 0x123."""
    return struct.pack(">IIII", index << 8 | opcode, 0x123 << 8 | segments, flags, imm)


def test_a_write_has_a_remote_address_and_its_data() -> None:
    remote = struct.pack(">QI4x", 0x10000, 0xABC01)
    data = struct.pack(">IIQ", 64, 0xDEF02, 0x20000)
    entry = decode_wqe((control(0x08, 3) + remote + data).ljust(64, b"\0"))
    assert (entry.name, entry.index, entry.qpn, entry.signaled) == ("WRITE", 7, 0x123, True)
    assert entry.remote == (0x10000, 0xABC01)
    assert entry.data == (Piece(64, 0xDEF02, 0x20000),)
    assert "64 B at 0x20000, key 0xdef02; remote 0x10000, key 0xabc01; signaled" in str(entry)


def test_inline_data_and_what_follows_it_are_told_apart() -> None:
    inline = struct.pack(">I", 5 | 1 << 31) + b"hello".ljust(12, b"\0")
    entry = decode_wqe((control(0x0B, 3, imm=9) + inline + struct.pack(">IIQ", 0, 1, 2)).ljust(64))
    assert entry.data == (Piece(5, None, None), Piece(1 << 31, 1, 2))  # size 0 means 2 GiB
    assert entry.immediate == 9


def test_atomic_and_wait_entries_have_operands() -> None:
    body = struct.pack(">QI4xQQ", 0x100, 5, 3, 4) + b"\0" * 16
    assert decode_wqe(control(0x12, 4) + body).operands == (3, 4)
    wait = control(0x0F, 2) + struct.pack(">8xII", 41, 0x55)
    assert "for completion 41 of queue 0x55" in str(decode_wqe(wait.ljust(64, b"\0")))


def test_an_unknown_opcode_is_named_by_its_number() -> None:
    assert decode_wqe(control(0x77, 1).ljust(64, b"\0")).name == "opcode 0x77"


@pytest.mark.parametrize("segments", [0, 1, 63])
def test_any_segment_count_ends_within_the_entry(segments: int) -> None:
    assert len(decode_wqe(control(0x08, segments).ljust(64, b"\xff")).data) <= 4


def test_an_error_completion_names_its_syndrome() -> None:
    raw = bytearray(64)
    raw[55], raw[63] = 0x13, 13 << 4 | 1
    struct.pack_into(">IH", raw, 56, 0x123, 7)
    completion = decode_cqe(bytes(raw))
    assert (completion.error, completion.qpn, completion.index) == ("remote access error", 0x123, 7)
    assert "remote access error (0x13)" in str(completion)


def test_a_completion_that_was_never_written_says_so() -> None:
    completion = decode_cqe(bytes(63) + bytes([15 << 4 | 1]))
    assert not completion.written
    assert str(completion) == "not written"


@pytest.mark.parametrize("decode", [decode_wqe, decode_cqe])
def test_a_short_entry_is_refused(decode: object) -> None:
    with pytest.raises(ValueError, match="63 bytes"):
        decode(bytes(63))  # type: ignore[operator]
