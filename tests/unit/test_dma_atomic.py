"""Fetch-add and compare-swap: operands, old values, what is refused, two processes."""

import re
import struct
import sys

import numpy as np
import pytest
from support.dma import rig
from support.processes.children import IMPORTER, child

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, Device, FaultRule, Op, Status
from dgkit.errors import AccessDenied, BoundsError, ClosedError, TransferError, Unsupported

TOP = (1 << 64) - 1


def word(buffer, at=0):
    return struct.unpack_from("=Q", buffer, at)[0]


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_fetch_add_brings_the_old_value_and_wraps(path):
    with rig(path=path) as r:
        struct.pack_into("=Q", r.remote_bytes, 64, 40)
        done = r.queue.fetch_add(*r.pair, 2, local_offset=8, remote_offset=64).wait(5)
        assert (done.status, done.size, done.op) == (Status.OK, 8, Op.FETCH_ADD)
        assert (word(r.local_bytes, 8), word(r.remote_bytes, 64)) == (40, 42)
        for addend, after in ((-43, TOP), (1, 0), (TOP, TOP), (-(1 << 63), (1 << 63) - 1)):
            before = word(r.remote_bytes, 64)
            r.queue.fetch_add(*r.pair, addend, remote_offset=64).wait(5)
            assert (word(r.local_bytes), word(r.remote_bytes, 64)) == (before, after)


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_compare_swap_stores_only_over_the_expected_value(path):
    with rig(path=path) as r:
        done = r.queue.compare_swap(*r.pair, 1, 7).wait(5)
        assert (done.status, done.size, done.op) == (Status.OK, 8, Op.COMPARE_SWAP)
        assert (word(r.local_bytes), word(r.remote_bytes)) == (0, 0)
        r.queue.compare_swap(*r.pair, 0, TOP).wait(5)
        assert (word(r.local_bytes), word(r.remote_bytes)) == (0, TOP)
        r.queue.compare_swap(*r.pair, TOP, 1, fence=True).wait(5)
        assert (word(r.local_bytes), word(r.remote_bytes)) == (TOP, 1)


def test_a_completion_names_its_operation():
    with rig(path="inline") as r:
        added = r.queue.fetch_add(*r.pair, 1)
        swapped = r.queue.compare_swap(*r.pair, 0, 1)
        assert "fetch_add of 8 bytes, inline" in repr(added)
        assert "compare_swap" in swapped._repr_html_()


@pytest.mark.parametrize(
    ("addend", "error", "words"),
    [
        (1 << 64, ValueError, r"addend is 18446744073709551616; the limit is 2\^64 - 1"),
        (
            -(1 << 63) - 1,
            ValueError,
            "addend is .*; it must be -9223372036854775808 or more",
        ),
        (1.0, TypeError, "addend is 1.0; it must be a whole number"),
        ("1", TypeError, "addend is '1'"),
        (None, TypeError, "addend is None"),
    ],
)
def test_an_addend_that_is_no_word_is_refused_by_name(addend, error, words):
    with rig() as r, pytest.raises(error, match=words):
        r.queue.fetch_add(*r.pair, addend)


@pytest.mark.parametrize("name", ["compare", "swap"])
@pytest.mark.parametrize(
    ("value", "error"), [(-1, BoundsError), (1 << 64, BoundsError), (0.5, TypeError)]
)
def test_operands_of_compare_swap_are_unsigned_words(name, value, error):
    operands = {"compare": 0, "swap": 0, name: value}
    with rig() as r, pytest.raises(error, match=f"{name} is {value}"):
        r.queue.compare_swap(*r.pair, **operands)


@pytest.mark.parametrize("path", ["inline", "worker"])
@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ({"remote_offset": 4}, ValueError, "the word at offset 4 begins 4 bytes after"),
        ({"remote_offset": 4096}, BoundsError, "remote region .* offset 4,096"),
        ({"remote_offset": -8}, BoundsError, "remote_offset is -8"),
        ({"local_offset": 4089}, BoundsError, "local region .* offset 4,089"),
        ({"local_offset": "8"}, TypeError, "local_offset is '8'"),
    ],
)
def test_a_word_that_is_misaligned_or_outside_is_refused(path, offsets, error, words):
    with rig(path=path) as r:
        for post in (
            lambda: r.queue.fetch_add(*r.pair, 1, **offsets),
            lambda: r.queue.compare_swap(*r.pair, 0, 1, **offsets),
        ):
            with pytest.raises(error, match=words):
                post()
        assert r.queue.pending == 0
        assert not any(r.remote_bytes)


@pytest.mark.parametrize(
    ("access", "words"), [("r", "is read-only: an atomic operation needs"), ("w", "is write-only")]
)
def test_the_remote_region_needs_both_kinds_of_access(access, words):
    with rig(remote_access=access) as r, pytest.raises(AccessDenied, match=words):
        r.queue.fetch_add(*r.pair, 1)


def test_the_local_region_needs_write_access():
    with rig(access="r") as r, pytest.raises(AccessDenied, match="local region"):
        r.queue.compare_swap(*r.pair, 0, 1)


def test_a_closed_queue_or_region_is_named():
    with rig() as r:
        r.local.close()
        with pytest.raises(ClosedError, match="region"):
            r.queue.fetch_add(*r.pair, 1)
        r.queue.close()
        with pytest.raises(ClosedError):
            r.queue.fetch_add(r.target, r.remote, 1)


def test_a_revoked_word_is_not_changed():
    with rig() as r:
        r.target.close()
        with pytest.raises(TransferError, match="fetch_add completed with REMOTE_ACCESS_ERROR"):
            r.queue.fetch_add(*r.pair, 1).wait(5)
        assert not any(r.remote_bytes)


@pytest.mark.parametrize("path", ["inline", "worker"])
def test_a_batch_has_all_operations_in_order(path):
    with rig(path=path) as r:
        batch = np.zeros(4, WR_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        batch["op"] = [Op.WRITE, Op.FETCH_ADD, Op.COMPARE_SWAP, Op.READ]
        batch["local_offset"] = [0, 8, 16, 24]
        batch["local_stride"] = [0, 10, 15, 0]
        batch["remote_stride"] = [0, 0, 100, 0]
        struct.pack_into("=Q", r.local_bytes, 0, 5)
        out = np.zeros(4, WC_DTYPE)
        with r.queue.prepare(batch) as prepared:
            for run in (lambda: r.queue.run(batch, out), prepared.run):
                r.local_bytes[8:32] = bytes(24)
                run()
                assert struct.unpack_from("=4Q", r.local_bytes) == (5, 5, 15, 100)
            assert list(prepared.completions["op"]) == [1, 2, 3, 0]
        assert (list(out["size"]), list(out["status"])) == ([8] * 4, [0] * 4)


def test_a_provider_without_atomics_names_itself_and_what_has_them():
    with rig("softdoca") as r:
        assert r.device.caps.atomics == 0
        assert re.search("Atomic operations.{,99}none<", r.device._repr_html_())
        with pytest.raises(Unsupported, match=r"softdoca .* has no atomic operations: .* soft"):
            r.queue.fetch_add(*r.pair, 1)


def test_the_capability_is_that_of_the_provider_below():
    with Device() as soft, Device("fault") as fault:
        assert soft.caps.atomics == fault.caps.atomics == 2
        assert "with respect to CPUs, too" in soft._repr_html_()


def test_fault_rules_match_atomics_by_a_letter():
    rules = [FaultRule("error", ops="a", status=Status.PEER_LOST)]
    with rig("fault", rules=rules) as r:
        r.queue.write(*r.pair, size=8).wait(5)
        r.queue.read(*r.pair, size=8).wait(5)
        for post in (
            lambda: r.queue.fetch_add(*r.pair, 1),
            lambda: r.queue.compare_swap(*r.pair, 0, 1),
        ):
            with pytest.raises(TransferError, match="PEER_LOST"):
                post().wait(5)
        assert not any(r.remote_bytes)


def test_two_processes_lose_no_increment():
    count = 5000
    with Device() as device:
        memory = dgkit.empty(4096)
        source = device.register(memory)
        remote = device.import_region(source.export("rw"))
        local, queue = device.register(bytearray(8)), device.queue(path="worker")
        with child(IMPORTER, source.export("rw").hex()) as other:
            assert other.line() == "map"
            add = "queue.fetch_add(local, remote, 1).wait(20).size"
            other.say(f"sum({add} for _ in range({count}))")
            for _ in range(count):
                queue.fetch_add(local, remote, 1).wait(20)
            assert other.line(60) == str(8 * count)
        assert word(memory.buffer) == 2 * count


def test_memory_that_the_exporter_copies_is_changed_by_the_exporter():
    with Device() as device:
        memory = bytearray(4096)
        source = device.register(memory)
        environment = {"DGKIT_NO_PROCESS_VM": "1"}
        with child(IMPORTER, source.export("rw").hex(), **environment) as other:
            assert other.line() == "proxy"
            other.say("queue.fetch_add(local, remote, 3).wait(5).size")
            assert other.line() == "8"
            other.say("queue.compare_swap(local, remote, 3, 7).wait(5).size")
            assert other.line() == "8"
        assert word(memory) == 7


def test_the_order_of_bytes_is_the_hosts():
    with rig() as r:
        r.queue.fetch_add(*r.pair, 0x0102).wait(5)
        assert bytes(r.remote_bytes[:8]) == (0x0102).to_bytes(8, sys.byteorder)
