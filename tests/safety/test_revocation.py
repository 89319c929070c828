# SPDX-License-Identifier: Apache-2.0
"""close() is a promise: once it returned, no importer moves a byte any more."""

import pytest
from support.dma import rig

from dgkit import Device, FaultRule
from dgkit.errors import RegionBusy, TransferError

DELAY = [FaultRule("delay", delay_us=300_000)]


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
