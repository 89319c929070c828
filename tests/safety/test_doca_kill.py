"""Over softdoca: either side killed or stopped at the worst moment is an error, and no hang."""

import contextlib
import signal

import pytest
from support.dma import keep
from support.processes.agents import agent
from support.processes.children import EXPORTER, IMPORTER, child
from support.processes.waiting import stop, until

import dgkit
from dgkit import Device, Status
from dgkit.errors import DgkitError, PeerLost, RegionBusy, TransferError

GIB = 1 << 30
KINDS = [("bytearray", "0"), ("bytearray", "1"), ("memfd", "0")]


def ended(transfer, timeout=10.0):
    with pytest.raises(TransferError) as info:
        transfer.wait(timeout)
    return info.value.completion.status


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("kind", "no_vm"), KINDS)
def test_an_exporter_killed_in_the_middle_of_a_large_copy_is_lost(kind, no_vm, op, monkeypatch):
    monkeypatch.setenv("DGKIT_NO_PROCESS_VM", no_vm)
    with (
        child(EXPORTER, GIB, kind, "rw", "softdoca") as exporter,
        Device("softdoca") as device,
    ):
        remote = keep(device).import_region(bytes.fromhex(exporter.line(60)), timeout=10)
        assert remote.method == "doca"
        memory = dgkit.empty(GIB)
        local, queue = device.register(memory), device.queue()
        transfer = getattr(queue, op)(local, remote)
        assert not transfer.done()
        exporter.send(signal.SIGKILL)
        assert ended(transfer) is Status.PEER_LOST
        until(lambda: remote.lost, "the region says so", timeout=5)
        assert ended(getattr(queue, op)(local, remote, size=64)) is Status.PEER_LOST
        remote.close()
        # The queue goes on, with memory that is still there.
        there = bytearray(4096)
        own = device.import_region(keep(device).register(there).export())
        queue.write(local, own, size=4096).wait(10)
        local.close()
        memory.close()


def test_an_importer_killed_while_it_holds_transfers_frees_the_region():
    memory = bytearray(GIB // 4)
    with Device("softdoca") as device:
        region = keep(device).register(memory)
        with child(IMPORTER, region.export().hex(), "softdoca") as importer:
            assert importer.line() == "doca"
            post = "[kept.append(queue.write(local, remote)) for _ in range(64)] and 'posted'"
            assert importer.ask(post) == "posted"
            importer.kill()
            until(lambda: region.importers == 0, "the import is gone", timeout=5)
            region.close(timeout=10)


def test_a_stopped_importer_holds_the_region_and_no_longer_when_it_is_killed():
    memory = bytearray(GIB // 4)
    with Device("softdoca") as device:
        region = keep(device).register(memory)
        with child(IMPORTER, region.export().hex(), "softdoca") as importer:
            importer.line()
            post = "[kept.append(queue.write(local, remote)) for _ in range(64)] and 'posted'"
            assert importer.ask(post) == "posted"
            stop(importer.pid)
            with pytest.raises(RegionBusy):
                region.close(timeout=0.05)
            importer.kill()
            region.close(timeout=10)


def test_a_dpu_of_softdoca_that_is_killed_ends_what_was_asked_of_it():
    with agent(provider="softdoca") as serving, dgkit.connect(serving.address) as session:
        region = session.empty(1 << 20)
        session.write(region, b"before")
        serving.send(signal.SIGKILL)
        with pytest.raises(PeerLost):
            session.write(region, b"after")


def test_a_host_that_is_killed_ends_what_this_dpu_moves():
    with (
        agent(role="host", provider="softdoca") as host,
        dgkit.connect(host.address, provider="softdoca") as session,
    ):
        region = session.empty(256 << 20)
        transfer = session.start_write(region, bytes(256 << 20))
        host.send(signal.SIGKILL)
        with contextlib.suppress(DgkitError):  # it may just have been through
            transfer.wait()
        until(lambda: region.remote.lost, "the region says so", timeout=5)
        with pytest.raises(DgkitError):
            session.write(region, b"after")
