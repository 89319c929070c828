"""Use after close, in whatever order things are closed."""

import itertools

import numpy as np
import pytest
from support.dma import keep, rig

import dgkit
from dgkit import Device
from dgkit.errors import ClosedError


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_regions_of_a_closed_device_cannot_be_used_on_another(path):
    with Device() as dead:
        keep(dead)
        local = dead.register(bytearray(64))
        token = local.export()
        remote = dead.import_region(token)
    with rig(path=path) as r:
        for pair in ((local, r.remote), (r.local, remote), (local, remote)):
            with pytest.raises(ClosedError, match=r"region #\d+ is closed"):
                r.queue.write(*pair, size=8)
        with pytest.raises(dgkit.DgkitError):
            r.device.import_region(token)


@pytest.mark.parametrize("order", list(itertools.permutations(range(5))))
def test_everything_may_be_closed_in_any_order(order):
    device = Device()
    target = device.register(bytearray(64))
    local, remote = device.register(bytearray(64)), device.import_region(target.export())
    queue = device.queue(8, "worker")
    queue.write(local, remote, size=8).wait(5)
    things = [device, target, local, remote, queue]
    for i in order:
        things[i].close()
    for thing in things:
        thing.close()
        assert thing.closed


def test_a_region_id_of_the_past_never_means_a_region_of_today():
    with rig() as r:
        old = r.device.register(bytearray(64))
        batch, out = np.zeros(1, dgkit.WR_DTYPE), np.zeros(1, dgkit.WC_DTYPE)
        batch["local"], batch["remote"], batch["size"] = old.id, r.remote.id, 8
        old.close()
        for _ in range(600):
            with r.device.register(bytearray(64)) as new:
                assert new.id != old.id
        with pytest.raises(ClosedError, match=f"local region #{old.id} is closed"):
            r.queue.run(batch, out)


def test_a_closed_local_region_cannot_be_posted_by_a_batch_that_names_it():
    with rig() as r:
        batch = np.zeros(4, dgkit.WR_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        r.queue.prepare(batch).close()
        r.local.close()
        with pytest.raises(ClosedError, match="local region"):
            r.queue.post(batch)
        r.local_bytes.append(1)
