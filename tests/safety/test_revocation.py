"""close() is a promise: once it returned, no importer moves a byte any more."""

import threading

import pytest
from support.dma import pattern, rig
from support.processes.children import EXPORTER, child
from support.processes.waiting import until

from dgkit import Device, FaultRule, Status
from dgkit.errors import RegionBusy, TransferError

DELAY = [FaultRule("delay", delay_us=300_000)]


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_after_close_new_transfers_are_refused_and_the_bytes_stay(path):
    with rig(path=path) as r:
        r.local_bytes[:] = pattern(4096)
        r.target.close()
        assert r.remote.revoked
        for post in (r.queue.write, r.queue.read):
            with pytest.raises(TransferError, match="REMOTE_ACCESS_ERROR: the exporter rev") as e:
                post(*r.pair, size=64).wait(5)
            assert e.value.completion.status is Status.REMOTE_ACCESS_ERROR
        assert not any(r.remote_bytes)
        r.remote_bytes.append(1)


def test_close_while_a_transfer_is_in_flight_waits_and_then_is_busy():
    with rig("fault", rules=DELAY) as r:
        transfer = r.queue.write(*r.pair, size=64)
        with pytest.raises(
            RegionBusy, match=rf"region #{r.target.id}.*still has transfers in flight"
        ) as info:
            r.target.close(timeout=0.01)
        assert info.value.errno == 16
        assert r.target.revoked
        assert not r.target.closed
        for region in (r.target, r.remote):
            assert repr(region).endswith(", revoked>")
            assert "(revoked)" in region._repr_html_()
        with pytest.raises(BufferError):
            r.remote_bytes.append(1)
        with pytest.raises(TransferError, match="REMOTE_ACCESS_ERROR"):
            transfer.wait(5)
        r.target.close()
        assert not any(r.remote_bytes)
        r.remote_bytes.append(1)


def test_close_of_the_local_side_while_in_flight_waits_and_then_is_busy():
    with rig("fault", rules=DELAY) as r:
        transfer = r.queue.write(*r.pair, size=64)
        with pytest.raises(RegionBusy, match="close it again"):
            r.local.close(timeout=0.01)
        with pytest.raises(TransferError, match="LOCAL_ERROR: the local region was closed"):
            transfer.wait(5)
        r.local.close()
        r.local_bytes.append(1)


def test_closing_the_importer_while_in_flight_is_busy_and_then_possible():
    with rig("fault", rules=DELAY) as r:
        transfer = r.queue.write(*r.pair, size=64)
        with pytest.raises(RegionBusy, match="still has transfers in flight"):
            r.remote.close(timeout=0.01)
        assert transfer.wait(5).status is not None
        r.remote.close()


def test_a_busy_device_stays_open_and_can_be_closed_later():
    device = Device("fault", rules=DELAY)
    there = bytearray(64)
    target, local = device.register(there), device.register(bytearray(64))
    remote, queue = device.import_region(target.export()), device.queue()
    queue.write(local, remote, size=8)
    device.close(timeout=0.01)
    assert device.closed
    assert queue.closed
    there.append(1)


def test_close_from_another_thread_ends_a_wait():
    with rig("fault", rules=[FaultRule("delay", delay_us=50_000)]) as r:
        transfer = r.queue.write(*r.pair, size=8)
        closer = threading.Thread(target=r.target.close)
        closer.start()
        with pytest.raises(TransferError, match="REMOTE_ACCESS_ERROR"):
            transfer.wait(5)
        closer.join(5)
        assert not closer.is_alive()


@pytest.mark.parametrize(("kind", "vm"), [("memfd", "0"), ("bytearray", "0"), ("bytearray", "1")])
def test_another_process_revokes_what_it_exported(kind, vm, monkeypatch):
    monkeypatch.setenv("DGKIT_NO_PROCESS_VM", vm)
    with child(EXPORTER, 4096, kind, "rw") as exporter, Device() as device:
        remote = device.import_region(bytes.fromhex(exporter.line()), timeout=10)
        local, queue = device.register(bytearray(4096)), device.queue()
        queue.write(local, remote, size=8).wait(5)
        assert exporter.ask("close 1") == "closed"
        until(lambda: remote.revoked, "the importer sees that it was revoked")
        with pytest.raises(TransferError, match="REMOTE_ACCESS_ERROR"):
            queue.write(local, remote, size=8).wait(5)
        local.close()
        remote.close()
        queue.close()
        assert exporter.end()[0] == 0


def test_a_region_that_is_dropped_while_in_flight_keeps_its_memory_where_it_is():
    there = bytearray(64)
    with Device("fault", rules=DELAY) as device:
        target, local = device.register(there), device.register(bytearray(64))
        remote, queue = device.import_region(target.export()), device.queue()
        transfer = queue.write(local, remote)
        with pytest.warns(ResourceWarning, match="was not closed"):
            del target
        with pytest.raises(BufferError):
            there.append(1)
        with pytest.raises(TransferError, match="REMOTE_ACCESS_ERROR"):
            transfer.wait(5)
