"""Memory for what a read brings: a large one has no page before its bytes come."""

import mmap
from pathlib import Path

import pytest

from dgkit.session.transfer import read_buffer

MIB = 1 << 20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_large_room_takes_no_pages_at_once():
    before = resident()
    made = read_buffer(256 * MIB)
    assert resident() - before < 64 * MIB
    made[4096:4099] = b"abc"
    assert bytes(made[4095:4100]) == b"\0abc\0"


def test_more_room_than_there_is_is_no_memory():
    with pytest.raises(MemoryError, match="bytes of a read"):
        read_buffer(1 << 62)
