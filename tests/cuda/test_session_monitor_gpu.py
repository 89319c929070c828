# SPDX-License-Identifier: Apache-2.0
"""A monitor over GPU memory: the copy engine is timed, and the figures say so."""

import pytest
from support.processes.waiting import until

import dgkit
from dgkit.errors import ClosedError, DgkitError


@pytest.fixture(scope="module")
def session():
    with dgkit.connect(provider="cuda") as made:
        yield made


def next_of(monitor):
    return until(monitor.read, "a block comes")[0]


@pytest.mark.parametrize("op", ["read", "write"])
def test_the_samples_are_the_copy_engines(session, op):
    with session.empty(4096, on="gpu", name="g") as region:
        region.array[:] = 7
        monitored = session.monitor(
            region, 64, op, count=20, every_s=0.01, offset=128, destructive=True
        )
        with monitored as monitor:
            assert monitor.label == "software DPU, GPU copy engine"
            assert "g on host, cuda:0" in monitor.where
            assert "dgkit fake GPU" in monitor.machine.engine
            block = next_of(monitor)
            assert (block.provider, block.size, len(block.samples)) == ("cuda", 64, 160)
        moved = bytes(64) if op == "write" else b"\7" * 64
        assert session.read(region, 4096) == b"\7" * 128 + moved + b"\7" * (4096 - 192)


def test_gpu_memory_that_is_closed_ends_its_monitor_and_nothing_else(session):
    region, other = session.empty(4096, on="gpu"), session.empty(4096, on="gpu")
    monitor = session.monitor(region, every_s=0.01)
    with session.monitor(other, every_s=0.01) as beside:
        next_of(monitor)
        region.close()

        def ended():
            try:
                monitor.read()
            except DgkitError as error:
                return error
            return None

        assert isinstance(until(ended, "the monitor ends"), ClosedError)
        assert next_of(beside)
        assert session.stats()["your_monitors"] == 1
    other.close()


def test_in_host_memory_the_cpu_copies_and_no_engine_is_named(session):
    with session.empty(4096) as region, session.monitor(region, every_s=0.01) as monitor:
        assert monitor.machine.engine == ""
        assert next_of(monitor)
