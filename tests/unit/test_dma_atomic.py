# SPDX-License-Identifier: Apache-2.0
"""Fetch-add and compare-swap: operands, old values, what is refused, two processes."""

import re
import struct

import pytest
from support.dma import rig

from dgkit import Device, FaultRule, Op, Status
from dgkit.errors import BoundsError, TransferError, Unsupported

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
