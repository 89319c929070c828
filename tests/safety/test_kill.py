# SPDX-License-Identifier: Apache-2.0
"""The exporter or an importer killed or stopped: a typed error within a second, no hang."""

import time

import pytest
from support.dma import keep
from support.processes.children import EXPORTER, child
from support.processes.waiting import until

from dgkit import Device, Status
from dgkit.errors import PeerLost, TransferError

KINDS = [("memfd", "0", "map"), ("bytearray", "0", "vm"), ("bytearray", "1", "proxy")]


def ended(transfer, timeout=1.0):
    """The error of a transfer, and how long it took to come."""
    start = time.monotonic()
    with pytest.raises(TransferError) as info:
        transfer.wait(timeout)
    return info.value.completion.status, time.monotonic() - start


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
