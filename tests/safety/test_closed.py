"""Use after close, in whatever order things are closed."""

import itertools

import numpy as np
import pytest
from support.dma import rig

import dgkit
from dgkit import Device
from dgkit.errors import ClosedError


def test_everything_may_be_closed_in_any_order():
    for order in itertools.permutations(range(5)):
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
            assert thing.closed, order


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
