# SPDX-License-Identifier: Apache-2.0
"""Measurements that write leave the bytes of the user's region alone, unless he wants otherwise."""

import mmap

import pytest
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.errors import AccessDenied, ClosedError, OutOfMemory
from dgkit.session import session_reports

SIZE = 4096
BYTES = bytes(range(256)) * (SIZE // 256)


def kinds(session):
    """A region of each kind of memory, and what it is."""
    yield "host", session.empty(SIZE, name="host")
    yield "dpu", session.empty(SIZE, on="dpu", name="dpu")
    yield "bytearray", session.register(bytearray(SIZE), name="bytearray")
    yield "mmap", session.register(mmap.mmap(-1, SIZE), name="mmap")


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as made:
        yield made


@pytest.mark.parametrize("kind", ["host", "dpu", "bytearray", "mmap"])
def test_no_measurement_changes_a_byte_of_the_region_and_its_report_names_scratch_memory(
    session, kind
):
    region = dict(kinds(session))[kind]
    before = session.regions
    session.write(region, BYTES)
    reports = [
        session.latency(region, size=64, op="write", count=50),
        session.bandwidth(region, size=64, op="write", seconds=0.02),
    ]
    assert all(f"scratch memory like {kind}" in report.where for report in reports)
    assert session.read(region, SIZE) == BYTES
    with session.monitor(region, 64, "write", every_s=0.01, offset=100) as monitor:
        until(monitor.read, "a block")
        assert f"scratch memory like {kind}" in monitor.where
        assert monitor.region is region
    assert session.read(region, SIZE) == BYTES
    assert session.regions == before
    for one in session.regions:
        one.close()


@pytest.mark.parametrize("call", ["latency", "bandwidth", "monitor"])
def test_the_users_own_bytes_are_written_if_that_is_asked_for(session, call):
    with session.empty(SIZE, name="mine") as region:
        session.write(region, BYTES)
        more = {"latency": {"count": 5}, "bandwidth": {"seconds": 0.01}}.get(
            call, {"every_s": 0.01}
        )
        made = getattr(session, call)(region, size=64, op="write", destructive=True, **more)
        if call == "monitor":
            made.close()
        assert made.where.startswith("mine on host")
        assert session.read(region, 64) == bytes(64)


def test_a_read_is_of_the_region_itself(session):
    with session.empty(SIZE, name="mine") as region:
        assert session.latency(region, op="read", count=5).where.startswith("mine on host")


@pytest.mark.parametrize("call", ["latency", "bandwidth", "monitor"])
def test_scratch_memory_is_freed_on_both_sides(session, call, monkeypatch):
    made = []
    monkeypatch.setattr(
        session_reports.Scratch,
        "free",
        lambda one, free=session_reports.Scratch.free: (made.append(one), free(one)),
    )
    with session.empty(SIZE, on="dpu") as region:
        before = session.stats()["allocated"]
        more = {"latency": {"count": 5}, "bandwidth": {"seconds": 0.01}}.get(
            call, {"every_s": 0.01}
        )
        done = getattr(session, call)(region, size=64, **more)
        if call == "monitor":
            done.close()
        assert [one.region.closed for one in made] == [True]
        assert session.stats()["allocated"] == before


def test_a_freed_region_ends_its_monitor_although_scratch_memory_is_measured(session):
    region = session.empty(SIZE, name="gone")
    monitor = session.monitor(region, every_s=0.01)
    until(monitor.read, "a block")
    region.close()
    with pytest.raises(ClosedError, match="'gone' was closed while it was monitored"):
        until(lambda: monitor.read() and False, "it ends")
    assert monitor.closed
    assert not session.monitors


def test_a_read_only_region_refuses_a_write_as_before_and_gets_no_scratch_memory(session):
    with session.register(b"constant bytes", access="r") as region:
        for call in (session.latency, session.monitor):
            with pytest.raises(AccessDenied):
                call(region, size=8)


def test_no_memory_for_it_is_said_before_anything_is_measured():
    with agent(max_memory=1 << 20) as running, dgkit.connect(running.address) as session:
        region = session.empty(500_000, on="dpu")
        session.write(region, b"kept")
        with pytest.raises((OutOfMemory, dgkit.LimitReached)):
            session.latency(region, size=500_000, count=1)
        assert session.read(region, 4) == b"kept"


def test_an_argument_that_is_no_truth_value_is_refused(session):
    with session.empty(SIZE) as region, pytest.raises(TypeError, match="destructive is 'yes'"):
        session.latency(region, destructive="yes")


def test_where_this_process_is_the_dpu_its_memory_is_kept_too():
    with agent(role="host") as running, dgkit.connect(running.address) as session:
        for region in (session.empty(SIZE), session.empty(SIZE, on="dpu")):
            session.write(region, BYTES)
            session.latency(region, count=10)
            with session.monitor(region, every_s=0.01) as monitor:
                until(monitor.read, "a block")
            assert session.read(region, SIZE) == BYTES


@pytest.mark.parametrize("role", ["host", "dpu"])
def test_a_killed_agent_leaves_no_error_for_the_end_of_a_monitor_with_scratch_memory(role):
    with agent(role=role) as one:
        session = dgkit.connect(one.address)
        monitor = session.monitor(session.empty(SIZE), 64, "write", every_s=0.01)
        until(monitor.read, "a block")
        one.process.kill()
        monitor.close()
        session.close()
        assert monitor.closed
        assert session.closed
