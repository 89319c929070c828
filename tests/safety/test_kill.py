"""Either side killed or stopped, at the worst moment: a typed error within a second, no hang."""

import signal
import time

import pytest
from support.dma import keep
from support.processes.children import EXPORTER, IMPORTER, child
from support.processes.waiting import stop, until

import dgkit
from dgkit import Device, Status
from dgkit.errors import PeerLost, PeerTimeout, RegionBusy, TransferError

GIB = 1 << 30
KINDS = [("memfd", "0", "map"), ("bytearray", "0", "vm"), ("bytearray", "1", "proxy")]


def in_turn(transfers):
    """How many of a queue's transfers end OK, all of them before those that end PEER_LOST."""
    statuses = []
    for transfer in transfers:
        try:
            statuses.append(transfer.wait(10).status)
        except TransferError as error:
            statuses.append(error.completion.status)
    done = statuses.count(Status.OK)
    assert statuses == [Status.OK] * done + [Status.PEER_LOST] * (len(statuses) - done)
    return done


def ended(transfer, timeout=1.0):
    """The error of a transfer, and how long it took to come."""
    start = time.monotonic()
    with pytest.raises(TransferError) as info:
        transfer.wait(timeout)
    return info.value.completion.status, time.monotonic() - start


def test_what_was_queued_when_the_exporter_is_killed_is_ok_with_its_bytes_or_peer_lost():
    """OK says that the bytes were moved: the import keeps memory that is mapped alive."""
    size, depth = 16 << 20, 32
    with child(EXPORTER, size, "memfd", "rw") as exporter, Device() as device:
        remote = keep(device).import_region(bytes.fromhex(exporter.line(60)), timeout=10)
        local, queue = device.register(bytearray(depth * size)), device.queue(depth=depth)
        posted = [
            queue.read(local, remote, size=size, local_offset=number * size)
            for number in range(depth)
        ]
        exporter.send(signal.SIGKILL)
        done = in_turn(posted)
        want = (bytes(range(251)) * (size // 251 + 1))[:size]
        for number in range(done):
            assert local.memory[number * size : (number + 1) * size] == want
        until(lambda: remote.lost, "the region says so", timeout=1)
        assert ", lost>" in repr(remote)
        assert ended(queue.read(local, remote, size=64))[0] is Status.PEER_LOST
        remote.close()


@pytest.mark.parametrize(("kind", "no_vm", "method"), KINDS)
def test_an_idle_exporter_killed_is_lost_within_a_second(kind, no_vm, method, monkeypatch):
    monkeypatch.setenv("DGKIT_NO_PROCESS_VM", no_vm)
    with child(EXPORTER, 4096, kind, "rw") as exporter, Device() as device:
        token = bytes.fromhex(exporter.line())
        remote = keep(device).import_region(token, timeout=10)
        local, queue = device.register(bytearray(4096)), device.queue()
        queue.write(local, remote).wait(5)
        exporter.kill()
        until(lambda: remote.lost, "the region says so", timeout=1)
        assert ended(queue.read(local, remote))[0] is Status.PEER_LOST
        with pytest.raises(PeerLost, match="the exporter is gone"):
            device.import_region(token)
        remote.close()


def test_an_importer_killed_is_forgotten_without_a_close():
    with Device() as device:
        region = keep(device).register(bytearray(64))
        for _ in range(3):
            with child(IMPORTER, region.export().hex()) as importer:
                importer.line()
                assert region.importers == 1
                importer.kill()
                until(lambda: region.importers == 0, "the importer is forgotten", timeout=1)


def test_an_importer_that_is_stopped_while_it_copies_keeps_the_memory_and_close_says_who():
    memory = dgkit.empty(GIB // 2)
    with Device() as device:
        region = keep(device).register(memory)
        with child(IMPORTER, region.export().hex()) as importer:
            assert importer.line() == "map"
            post = "[kept.append(queue.write(local, remote)) for _ in range(64)] and 'posted'"
            assert importer.ask(post) == "posted"
            stop(importer.pid)
            with pytest.raises(RegionBusy, match=f"process {importer.pid} still has transfers"):
                region.close(timeout=0.2)
            assert region.revoked
            assert not region.closed
            importer.send(signal.SIGCONT)
            region.close(timeout=5)
        assert region.closed


def test_an_importer_that_is_stopped_and_idle_is_not_in_the_way():
    with Device() as device:
        region = keep(device).register(dgkit.empty(64))
        with child(IMPORTER, region.export().hex()) as importer:
            importer.line()
            stop(importer.pid)
            region.close(timeout=1)


def test_an_import_from_a_stopped_exporter_times_out():
    with child(EXPORTER, 64, "memfd", "rw") as exporter, Device() as device:
        token = bytes.fromhex(exporter.line())
        stop(exporter.pid)
        start = time.monotonic()
        with pytest.raises(PeerTimeout, match=r"\d+\) does not answer: check .* stopped"):
            device.import_region(token, timeout=0.2)
        assert time.monotonic() - start < 1.0
        exporter.send(signal.SIGCONT)
        with device.import_region(token, timeout=5) as remote:
            assert remote.size == 64


def test_a_mapped_region_of_a_stopped_exporter_can_be_copied():
    with child(EXPORTER, 4096, "memfd", "rw") as exporter, Device() as device:
        remote = keep(device).import_region(bytes.fromhex(exporter.line()), timeout=10)
        local, queue = device.register(bytearray(4096)), device.queue()
        stop(exporter.pid)
        assert queue.read(local, remote).wait(5).size == 4096
        remote.close()
