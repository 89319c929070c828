# SPDX-License-Identifier: Apache-2.0
"""Finalizers run in any thread at any time: they make no request and wait for nobody."""

import pytest
from support.processes.children import run
from support.processes.waiting import gone, stop, until

import dgkit


def test_a_gpu_queue_that_nobody_closed_makes_no_request_and_goes_with_the_next_one():
    with dgkit.connect() as session:
        far, near = session.empty(4096, on="dpu"), session.empty(4096)
        before = len(session.device._regions)
        queue = session.gpu_queue(far, near)
        sent = session._link._next
        with pytest.warns(ResourceWarning, match="SessionGpuQueue .* was not closed"):
            del queue
        assert session._link._next == sent
        for _ in range(20):  # the agent serves 8 at most
            with pytest.warns(ResourceWarning, match="was not closed"):
                session.gpu_queue(far, near)
        until(lambda: session.stats() and len(session.device._regions) == before, "all are freed")


def test_a_gpu_queue_that_nobody_closed_goes_with_its_session():
    with dgkit.connect() as session:
        far, near = session.empty(4096, on="dpu"), session.empty(4096)
        queue = session.gpu_queue(far, near)
        memory = queue._memory
        with pytest.warns(ResourceWarning, match="was not closed"):
            del queue
    assert memory.closed
    assert session.device.closed


def test_a_session_that_nobody_closed_does_not_wait_for_a_stopped_software_dpu():
    session = dgkit.connect()
    pid = session.owned_pid
    stop(pid)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del session
    assert not gone(pid)  # close() would have killed it after a second
    until(lambda: gone(pid), "the software DPU is killed")


# Sessions with a region, a monitor and a transfer, each found by the cycle collector only.
CYCLES = """
import gc, warnings
import dgkit
warnings.simplefilter("ignore")
for number in range(4):
    session = dgkit.connect()
    region = session.empty(4096)
    cycle = [session, region, session.monitor(region), session.start_write(region, bytes(4096))]
    cycle.append(cycle)
    del session, region, cycle
    gc.collect()
"""


def test_a_session_that_the_cycle_collector_takes_is_closed_by_handles_that_are_not_freed():
    # The C library overwrites what is freed, so that each use of it shows.
    run(CYCLES, MALLOC_PERTURB_="165")


# Exports of buffers in a cycle, as Ctrl-C leaves them in a finalizer, or in the frame of its
# traceback. The views are older than the cycle, so the collector clears them first.
EXPORTED = """
import gc, operator, sys
import dgkit
from dgkit.dma import bytes_memory
from dgkit.dma.gpu_queue import RingConfig
from dgkit.dma.remote_ring import ExportedRing

class Kept:
    def __init__(self, each):
        self.self, self.each = self, each

class Lib:
    dg_copy_large = operator.neg  # fails: the number of its arguments is wrong

def a_copy_that_is_interrupted():
    lib, bytes_memory.lib = bytes_memory.lib, Lib
    try:
        bytes_memory.fill(bytes(9 << 20), 0, memoryview(bytearray(9 << 20)))
    except TypeError as error:
        Kept(error)
    bytes_memory.lib = lib

def a_ring_that_nobody_closed():
    config = RingConfig(64, weak=False, timeout=1.0, trace=False, index=1)
    memory = dgkit.empty(ExportedRing.size_of(config))
    Kept(ExportedRing(device.register(memory), config))

with dgkit.Device() as device:
    for _ in range(5):
        globals()[sys.argv[1]]()
        gc.collect()
print("alive")
"""


@pytest.mark.parametrize("what", ["a_copy_that_is_interrupted", "a_ring_that_nobody_closed"])
def test_the_cycle_collector_clears_no_view_that_is_still_exported(what):
    assert run(EXPORTED, what) == "alive\n"
