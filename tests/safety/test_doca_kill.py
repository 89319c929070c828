"""Over softdoca: a stopped importer, and either side of a session killed, is an error and no hang.

Killed importers and exporters are in native/test_doca_others.c.
"""

import contextlib
import signal

import pytest
from support.dma import keep
from support.processes.agents import agent
from support.processes.children import IMPORTER, child
from support.processes.waiting import stop, until

import dgkit
from dgkit import Device
from dgkit.errors import DgkitError, PeerLost, RegionBusy

GIB = 1 << 30


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
