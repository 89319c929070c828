# SPDX-License-Identifier: Apache-2.0
"""The software NIC, driven by entries that Python writes as a kernel would."""

from __future__ import annotations

import struct

import pytest

import dgkit
from dgkit.dma.held_memory import HeldMemory
from dgkit.dma.nic import VerbsQueue, VerbsQueueConfig
from dgkit.errors import ClosedError, RegionBusy, Unsupported
from dgkit.gpu_initiated import queue_report
from dgkit.gpu_initiated.mlx5 import decode_cqe

WRITE = 0x08


@pytest.fixture
def nic():
    with dgkit.Device("soft") as device, device.nic() as nic:
        yield nic


@pytest.fixture
def memory(nic):
    """Two regions of 4 KiB, and their keys."""
    with dgkit.empty(4096) as near, dgkit.empty(4096) as far:
        near.array[:], far.array[:] = 7, 0
        with nic.device.register(near) as local, nic.device.register(far) as remote:
            yield near, far, nic.key(local), nic.key(remote)


@pytest.fixture(params=["proxy", "record", "no record"])
def pair(nic, request):
    """Two connected queue pairs."""
    with (
        nic.queue_pair(8, receives=4, doorbell=request.param) as one,
        nic.queue_pair(8, receives=4, doorbell=request.param) as other,
    ):
        one.connect(other)
        other.connect(one)
        yield one, other


def post(queue, opcode, segments, *, immediate=0):
    """Write an entry and ring the doorbell."""
    index = post.counts[queue] = post.counts.get(queue, -1) + 1
    ds = 1 + sum(len(s) for s in segments) // 16
    control = struct.pack(">IIII", index << 8 | opcode, queue.number << 8 | ds, 8, immediate)
    at = queue.config.offsets[2] + index % queue.depth * 64
    entry = control + b"".join(segments)
    queue._memory[at : at + len(entry)] = entry
    count = index + 1
    if queue.config.doorbell == "proxy":
        struct.pack_into("<Q", queue._memory, queue._DOORBELL, count)
    elif queue.config.doorbell == "record":
        struct.pack_into(">I", queue._memory, queue._RECORD + 4, count & 0xFFFF)
    else:
        struct.pack_into("<Q", queue._memory, 16, count)
    return index


@pytest.fixture(autouse=True)
def _counts():
    post.counts = {}


def remote(key, offset=0):
    return struct.pack(">QII", key.address + offset, key.number, 0)


def data(key, size, offset=0):
    return struct.pack(">IIQ", size, key.number, key.address + offset)


def wait(queue, count=1):
    """Wait for `count` completions, and return the report."""
    while queue.info().completions < count:
        pass
    return queue_report(queue)


def test_a_write_moves_its_bytes_and_completes(nic, memory, pair):
    near, far, local, remote_key = memory
    one, _ = pair
    for round_ in range(20):  # over the end of the ring
        near.array[:64] = round_
        post(one, WRITE, [remote(remote_key, 64), data(local, 64)])
        report = wait(one, round_ + 1)
        assert (far.array[64:128] == round_).all()
    assert report.entries[-1].state == "complete"
    assert report.completions[-1].index == 19
    assert report.info.operations == {WRITE: 20}
    assert nic.stats().bytes == 20 * 64


@pytest.mark.parametrize(
    ("what", "error"),
    [("key", "remote access error"), ("range", "remote access error"),
     ("local key", "local protection error")],
)  # fmt: skip
def test_an_entry_that_reaches_beyond_its_keys_moves_nothing(memory, pair, what, error):
    _, far, local, remote_key = memory
    one, _ = pair
    ends = remote(remote_key, 4090 if what == "range" else 0), data(local, 64)
    wrong = {"key": (struct.pack(">QII", remote_key.address, 5, 0), ends[1]), "range": ends,
             "local key": (ends[0], struct.pack(">IIQ", 64, 5, local.address))}  # fmt: skip
    post(one, WRITE, wrong[what])
    report = wait(one)
    post(one, WRITE, [remote(remote_key), data(local, 64)])
    after = wait(one, 2)
    assert not far.array.any()
    assert report.completions[0].error == error
    assert report.info.why
    assert report.info.state == "error"
    assert after.completions[1].error == "flushed"
    assert report.entries[0].state == "failed"
    assert error in report._repr_html_()


def test_a_queue_pair_works_again_once_it_is_connected_again(memory, pair):
    _, far, local, remote_key = memory
    one, other = pair
    post(one, WRITE, [struct.pack(">QII", 0, 5, 0), data(local, 64)])
    wait(one)
    one.connect(other)
    other.connect(one)
    post.counts.clear()
    post(one, WRITE, [remote(remote_key), data(local, 64)])
    report = wait(one)
    assert report.info.state == "ready to send"
    assert len(report.completions) == 1
    assert report.completions[0].error is None
    assert far.array[:64].all()


def test_a_revoked_key_opens_nothing(nic, memory, pair):
    _, far, local, remote_key = memory
    nic.close_key(remote_key)
    post(pair[0], WRITE, [remote(remote_key), data(local, 64)])
    assert wait(pair[0]).completions[0].error == "remote access error"
    assert not far.array.any()


def test_a_queue_pair_may_lie_in_memory_of_the_process_whose_kernels_post(nic, memory):
    """Its structure has the addresses that they see, as have their keys."""
    _, far, local, remote_key = memory
    config, at = VerbsQueueConfig(4, 0, "proxy", 0, False), 1 << 40
    with dgkit.empty(config.offsets[-1]) as place, nic.device.register(place) as exported:
        imported = nic.device.import_region(exported.export())
        held = HeldMemory(imported)
        with VerbsQueue(nic, config, held, at) as one, nic.queue_pair(2) as other:
            one.connect(other)
            other.connect(one)
            words = struct.unpack("<37Q", one._handle_bytes(296))
            assert [words[i] - at for i in (8, 9, 10)] == [config.offsets[2], 516, 576]
            elsewhere = nic.key(local.region, address=at)
            assert (elsewhere.address, elsewhere.size) == (at, 4096)
            post(one, WRITE, [remote(remote_key), data(elsewhere, 64)])
            wait(one)
            assert far.array[:64].all()
        with pytest.raises(RegionBusy):
            exported.close(0.01)
        config.fail(place.buffer, one.number, 0x15)
        ends = [decode_cqe(bytes(place.buffer[i : i + 64])) for i in range(4096, 4352, 64)]
        assert [each.error for each in ends] == [None] + 3 * ["retries exceeded"]
        assert [each.index for each in ends] == [0, 1, 2, 3]
        place.buffer[184] = 1  # the kernel has polled the first one
        config.fail(place.buffer, one.number, 0x15)
        assert decode_cqe(bytes(place.buffer[4096:4160])).index == 4
        held.close()
        held.close()
        imported.close()


def test_only_another_ones_open_memory_is_held(nic):
    with dgkit.empty(4096) as place, nic.device.register(place) as exported:
        with pytest.raises(Unsupported, match="not another process's memory"):
            HeldMemory(exported)
        imported = nic.device.import_region(exported.export())
        exported.close()
        with imported, pytest.raises(ClosedError, match="closed by its owner"):
            HeldMemory(imported)


def test_keys_of_another_domain_are_refused(nic, memory):
    _, far, local, _ = memory
    with nic.device.register(far) as again, nic.queue_pair(8) as one, nic.queue_pair(8) as other:
        stranger = nic.key(again, domain=1)
        one.connect(other)
        other.connect(one)
        post(one, WRITE, [remote(stranger), data(local, 64)])
        assert wait(one).completions[0].error == "remote access error"


@pytest.mark.parametrize(
    "wrong",
    [{"entries": 3}, {"entries": 1}, {"entries": 65536}, {"receives": 5}, {"doorbell": "bell"},
     {"entries": 2.5}, {"domain": -1}, {"domain": 1 << 32}],
)  # fmt: skip
def test_a_wrong_number_or_name_is_refused(nic, wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        nic.queue_pair(**wrong)


def test_a_key_of_what_is_no_region_is_refused(nic):
    with pytest.raises(TypeError, match="region is b'bytes'"):
        nic.key(b"bytes")


@pytest.mark.parametrize("peer", [(b"short", 1), (bytes(16), 1 << 24), (bytes(16), 1)])
def test_a_wrong_peer_is_refused(nic, peer):
    with nic.queue_pair(8) as queue, pytest.raises((ValueError, dgkit.DgkitError)):
        queue.connect(peer)


def test_what_is_closed_says_so(nic):
    queue = nic.queue_pair(8)
    queue.close()
    queue.close()
    for call in (queue.info, queue.entries, lambda: queue.connect(queue), lambda: queue.address):
        with pytest.raises(ClosedError):
            call()
    nic.close()
    with pytest.raises(ClosedError):
        nic.stats()


def test_a_device_closes_its_nics():
    device = dgkit.Device("soft")
    queue = device.nic().queue_pair(8)
    device.close()
    assert queue.closed
