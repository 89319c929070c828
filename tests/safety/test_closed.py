# SPDX-License-Identifier: Apache-2.0
"""Use after close, in whatever order things are closed."""

import itertools

from dgkit import Device


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
