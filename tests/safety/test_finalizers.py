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
