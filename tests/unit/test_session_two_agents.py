# SPDX-License-Identifier: Apache-2.0
"""A session whose host and DPU are agents: this process lends no memory."""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import threading

import pytest
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.agent import serve
from dgkit.session import inspect
from dgkit.sizes import STAGE_BYTES
from dgkit.wire import keys
from dgkit.wire import messages as m


@contextlib.contextmanager
def two_agents():
    with agent(role="host") as host, agent(role="dpu") as dpu:
        yield host, dpu


@pytest.fixture(scope="module")
def sides():
    with two_agents() as started:
        yield started


@pytest.fixture
def session(sides):
    host, dpu = sides
    with dgkit.connect(dpu.address, host=host.address) as opened:
        yield opened


@pytest.mark.parametrize("on", ["host", "dpu"])
@pytest.mark.parametrize("size", [1, STAGE_BYTES, m.STAGE_BYTES + 1, (1 << 20) + 7])
def test_bytes_of_this_process_reach_a_region_and_come_back(on, size, session):
    data = os.urandom(size)
    region = session.empty(size + 5, on=on)
    report = session.write(region, data, offset=5)
    assert report.size == size
    assert session.read(region, size, offset=5) == data
    assert session.digest(region, size, 5) == hashlib.sha256(data).hexdigest()


def test_the_report_says_which_part_was_no_dma(session):
    region = session.empty(100_000)
    report = session.write(region, bytes(100_000))
    assert report.over_wire
    assert not report.direct
    assert "by the control connection, without DMA" in repr(report)
    assert "Not by DMA" in report._repr_html_()
    copied = session.copy(region, session.empty(100_000, on="dpu"))
    assert not copied.over_wire
    assert "control connection" not in repr(copied)


def test_the_sides_are_the_two_agents(sides, session):
    host, dpu = sides
    info = session.info
    assert (info["host"]["pid"], info["dpu"]["pid"]) == (host.pid, dpu.pid)
    assert info["role"] == session.role == "neither"
    assert "this process is neither" in repr(session)
    assert "this process" not in session._repr_html_()


def test_memory_of_this_process_is_refused(session):
    with pytest.raises(dgkit.Unsupported, match=r"session\.empty\(\) allocates memory at one"):
        session.register(bytearray(64))
    region = session.empty(64)
    with pytest.raises(dgkit.Unsupported, match="are at the agent"):
        _ = region.array
    assert session.regions == (region,)


def test_latency_bandwidth_and_monitor_are_the_dpus(session):
    region = session.empty(1 << 16)
    assert session.latency(region, size=64, count=100).provider == "soft"
    assert session.bandwidth(region, size=4096, seconds=0.1).provider == "soft"
    with session.monitor(region, every_s=0.01, count=5) as monitor:
        until(monitor.read, "samples arrive")


def test_a_closed_region_frees_the_memory_of_both_agents(sides, session):
    host, _ = sides
    region = session.empty(1 << 20)
    allocated = lambda: inspect(host.address)[1]["allocated"]  # noqa: E731
    assert allocated() == 1 << 20
    region.close()
    assert allocated() == 0
    with pytest.raises(dgkit.ClosedError):
        session.read(region, 1)


def test_the_end_of_a_session_frees_everything(sides):
    host, dpu = sides
    with dgkit.connect(dpu.address, host=host.address) as opened:
        opened.write(opened.empty(1 << 20), bytes(1 << 20))
    for side in (host, dpu):
        until(lambda side=side: inspect(side.address)[1]["allocated"] == 0, "its memory is free")


@pytest.mark.parametrize("which", [0, 1])
def test_the_death_of_either_side_ends_the_session(which):
    with two_agents() as (host, dpu), dgkit.connect(dpu.address, host=host.address) as session:
        region = session.empty(1 << 16)
        session.write(region, b"before")
        (host, dpu)[which].send(signal.SIGKILL)

        def lost():
            try:
                session.read(region, 1 << 16)
            except (dgkit.PeerLost, dgkit.TransferError):
                return session._link.dead is not None
            return False

        until(lost, "the session is lost")
        with pytest.raises(dgkit.PeerLost):
            session.empty(64, on="dpu")


def test_transfers_of_several_threads_and_an_event_loop_are_whole(session):
    regions = [session.empty(300_000) for _ in range(4)]
    parts = [os.urandom(300_000) for _ in regions]

    def move(region, data):
        session.write(region, data)
        read.append(session.read(region, len(data)) == data)

    read = []
    threads = [
        threading.Thread(target=move, args=pair) for pair in zip(regions, parts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [True] * 4

    async def awaited():
        return await session.start_write(regions[0], parts[1])

    assert asyncio.run(awaited()).size == 300_000
    assert session.read(regions[0], 300_000) == parts[1]


def test_a_cancelled_transfer_ends_and_the_next_is_whole(session):
    region = session.empty(4 << 20)
    transfer = session.start_write(region, bytes(4 << 20))
    transfer.cancel()
    with pytest.raises(dgkit.PeerError, match="interrupted"):
        transfer.wait(20)
    data = os.urandom(1 << 18)
    session.write(region, data)
    assert session.read(region, 1 << 18) == data


def test_agents_of_the_wrong_role_are_refused(sides):
    host, dpu = sides
    with pytest.raises(ValueError, match=r"has the role host: .* takes a DPU's agent first"):
        dgkit.connect(host.address, host=dpu.address)
    with pytest.raises(ValueError, match="has the role dpu"):
        dgkit.connect(dpu.address, host=dpu.address)
    with pytest.raises(ValueError, match="host is for two agents"):
        dgkit.connect(host=host.address)


def test_an_agent_stores_and_returns_only_bytes_of_the_clients_own_memory(session):
    link, region = session._link, session.empty(100, on="dpu")
    imported = session.empty(100)
    with pytest.raises(dgkit.BoundsError, match="leave region"):
        link.ask(m.Stage(region=region.handle, offset=99, data=b"ab"))
    with pytest.raises(dgkit.BoundsError, match="has 100 bytes"):
        link.ask(m.Fetch(region=region.handle, offset=101, size=0))
    with pytest.raises(dgkit.PeerError, match="was imported"):
        link.ask(m.Fetch(region=imported.handle, offset=0, size=1))
    with pytest.raises(dgkit.ClosedError):
        link.ask(m.Stage(region=1 << 40, offset=0, data=b"x"))
    link.ask(m.Stage(region=region.handle, offset=99, data=b"z"))
    assert link.ask(m.Fetch(region=region.handle, offset=98, size=2)).data == b"\0z"
    with pytest.raises(dgkit.PeerError):  # larger than the wire allows
        link.ask(m.Fetch(region=region.handle, offset=0, size=STAGE_BYTES + 1))


def test_the_telemetry_port_is_the_one_that_was_given(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (
        agent(address="tcp://127.0.0.1:0", telemetry_port=port) as served,
        dgkit.connect(served.address) as opened,
    ):
        assert opened.telemetry().startswith(f"tcp://127.0.0.1:{port}")
    with pytest.raises(ValueError, match="telemetry_port=7 is for tcp://"):
        serve(telemetry_port=7)
