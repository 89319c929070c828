# SPDX-License-Identifier: Apache-2.0
"""An agent that serves many clients, in either role, over ipc and tcp."""

import os
import sys
import threading

import msgspec
import pytest
import zmq
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.agent import default_memory, serve
from dgkit.errors import AccessDenied, ClosedError, NativeError, PeerRefused, Unsupported
from dgkit.sizes import SAMPLES_A_BLOCK
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.messages import SUBSCRIBED, decode_published

MIB = 1 << 20


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public, "this very client")


@pytest.fixture(scope="module")
def dpu():
    with agent() as running:
        yield running


@pytest.fixture(scope="module")
def host():
    with agent(role="host") as running:
        yield running


def test_clients_of_one_agent_do_not_see_each_other(dpu):
    with dgkit.connect(dpu.address) as one, dgkit.connect(dpu.address) as two:
        mine, yours = one.empty(64, on="dpu"), two.empty(64, on="dpu")
        one.write(mine, b"one")
        two.write(yours, b"two")
        assert (one.read(mine, 3), two.read(yours, 3)) == (b"one", b"two")
        assert one.stats()["clients"] == 2
        mine.close()
        assert two.read(yours, 3) == b"two"
        with pytest.raises(ClosedError):
            one.read(mine, 3)


def test_a_handle_of_another_client_opens_nothing(dpu):
    with dgkit.connect(dpu.address) as one, dgkit.connect(dpu.address) as two:
        kept = [one.empty(64, on="dpu") for _ in range(5)]
        with pytest.raises(ClosedError, match="unknown to the agent"):
            two._link.ask(m.Digest(region=kept[-1].handle, offset=0, size=64))


def test_what_a_client_asked_for_and_did_not_wait_for_is_not_counted_when_it_left(dpu):
    with dgkit.connect(dpu.address) as watcher:
        with dgkit.connect(dpu.address) as leaving:
            for _ in range(200):
                unused = m.Allocate(size=MIB, access=3, export=False, name="unused")
                leaving._link.post(unused)
        until(lambda: watcher.stats()["clients"] == 1, "the other client is gone")
        assert watcher.stats()["allocated"] == 0


def test_a_large_copy_of_one_client_does_not_hold_up_the_small_writes_of_another(dpu):
    size = 256 * MIB
    with dgkit.connect(dpu.address) as heavy, dgkit.connect(dpu.address) as light:
        src, dst, small = heavy.empty(size), heavy.empty(size), light.empty(64)
        light.write(small, b"warm")
        copying = threading.Thread(target=heavy.copy, args=(src, dst))
        done = 0
        copying.start()
        while copying.is_alive():
            light.write(small, b"quick")
            done += 1
        copying.join()
        assert done > 20


def test_a_measurement_of_one_client_runs_beside_its_own_writes(dpu):
    with dgkit.connect(dpu.address) as session:
        region = session.empty(MIB)
        measuring = threading.Thread(
            target=session.bandwidth, args=(region,), kwargs={"seconds": 0.5}
        )
        measuring.start()
        done = 0
        while measuring.is_alive():
            session.write(region, b"still here")
            done += 1
        measuring.join()
        assert done > 20


def test_on_the_dpu_side_this_process_moves_the_bytes_of_the_hosts_memory(host):
    data = os.urandom(9 * MIB + 3)
    with dgkit.connect(host.address) as session:
        assert session.info["role"] == "dpu"
        assert session.info["host"]["pid"] == host.pid
        there, here = session.empty(len(data)), session.empty(len(data), on="dpu")
        assert session.write(there, data).size == len(data)
        assert session.read(there, len(data)) == data
        assert session.read(there, 5, offset=7) == data[7:12]
        assert session.copy(there, here).size == len(data)
        assert bytes(here.array) == data
        assert session.digest(there) == session.digest(here)
        transfer = session.start_write(there, data[::-1])
        assert transfer.wait().op == 1
        assert session.read(there, 64) == data[::-1][:64]
        assert session.latency(there, count=500).provider == "soft"
        assert session.bandwidth(there, size=4096, seconds=0.1).failed == 0
        mine = session.register(bytearray(b"mine"))
        assert session.read(mine, 4) == b"mine"
        there.close()
        with pytest.raises(ClosedError):
            session.read(there, 1)


def test_on_the_dpu_side_transfers_share_the_staging_memory_and_can_be_awaited(host):
    import asyncio

    data = os.urandom(20 * MIB)

    async def await_it(transfer):
        return await transfer

    with dgkit.connect(host.address) as session:
        one, two = session.empty(len(data)), session.empty(len(data))
        first, second = session.start_write(one, data), session.start_write(two, data)
        assert second.wait().size == first.wait().size == len(data)
        read = session.start_read(two, len(data))
        assert asyncio.run(await_it(read)).size == len(data)
        assert read.data == data


def test_a_host_moves_no_bytes(host):
    with dgkit.connect(host.address) as session:
        for request in (
            m.Move(src=1, src_offset=0, dst=1, dst_offset=0, size=1),
            m.Digest(region=1, offset=0, size=1),
            m.Import(token=b"x"),
        ):
            with pytest.raises(Unsupported, match="lends a host's memory"):
                session._link.ask(request)


def test_an_export_is_what_the_agent_allocated(host):
    with dgkit.connect(host.address) as session:
        region = session.empty(64)
        token = session._link.ask(m.Export(region=region.handle, access=1)).token
        with session.device.import_region(token) as remote:
            assert remote.access == 1


def test_a_tcp_listener_without_keys_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(PeerRefused, match="dgkit keys make"):
        serve("tcp://127.0.0.1:0")


def test_a_tcp_listener_whose_secret_others_can_read_is_refused(own_keys):
    (keys.folder() / "default.secret").chmod(0o644)
    with pytest.raises(AccessDenied, match="chmod 600"):
        serve("tcp://127.0.0.1:0")


def test_a_role_or_an_address_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="role"):
        serve(role="guest")
    with pytest.raises(NativeError, match="cannot listen"):
        serve("ipc:///nonexistent/folder/x.sock")


def test_telemetry_comes_in_numbered_blocks(dpu):
    with dgkit.connect(dpu.address) as session, zmq.Context() as context:
        region = session.empty(4096)
        endpoint, subscription = session.telemetry_subscription()
        with context.socket(zmq.DEALER) as sub:
            sub.linger = 0
            sub.connect(endpoint)
            sub.send(subscription)
            assert sub.recv() == SUBSCRIBED

            def heard():
                session.write(region, b"x")
                return sub.poll(0)

            until(heard, "a first block")
            blocks = [decode_published(sub.recv()).block]
            session.latency(region, count=9000)
            while sub.poll(1000) and blocks[-1].source != "latency":
                blocks.append(decode_published(sub.recv()).block)
            while len(blocks[-1].samples) == 8 * SAMPLES_A_BLOCK:
                blocks.append(decode_published(sub.recv()).block)
        numbers = [block.number for block in blocks]
        assert numbers == list(range(numbers[0], numbers[0] + len(blocks)))
        assert {block.provider for block in blocks} == {"soft"}
        latency = [len(block.samples) // 8 for block in blocks if block.source == "latency"]
        assert sum(latency) == 9000


def test_half_of_the_memory_is_the_default_limit():
    assert default_memory() > 64 * MIB


def test_progress_and_cancel_reach_a_long_measurement(dpu):
    told = []

    class Enough(Exception):
        pass

    def stop(done, total):
        told.append((done, total))
        raise Enough

    with dgkit.connect(dpu.address) as session:
        region = session.empty(MIB)
        with pytest.raises(Enough):
            session.bandwidth(region, seconds=3600.0, progress=stop)
        assert told
        assert session.latency(region, count=10).path == "inline"
        session.write(region, b"usable")
        pending = session._link.pending
        until(lambda: session._link.pump() or not pending, "the cancelled run has ended")


def test_an_agent_of_another_machine_is_named_with_the_providers_that_reach_it(dpu, monkeypatch):
    monkeypatch.setattr("dgkit.wire.host_id.boot_id", lambda: "another boot")
    with pytest.raises(Unsupported, match=r"another machine.*doca"):
        dgkit.connect(dpu.address)


def test_a_host_of_another_machine_alone_is_a_session_whose_moves_say_why_they_cannot_be(
    monkeypatch,
):
    monkeypatch.setattr("dgkit.wire.host_id.boot_id", lambda: "another boot")
    with agent(role="host") as host, dgkit.connect(host.address) as session:
        region = session.empty(4096, name="far")
        assert session.stats()["allocated"] == 4096
        why = r"another machine.*reaches only memory.*connect\(DPU_ADDRESS, host=ADDRESS\)"
        own = session.empty(64, on="dpu")
        for move in (
            lambda: session.write(region, b"x"),
            lambda: session.read(region, 1),
            lambda: session.start_write(region, b"x"),
            lambda: session.copy(own, region),
            lambda: session.digest(region),
            lambda: session.latency(region, size=8, count=1),
            lambda: session.monitor(region),
        ):
            with pytest.raises(Unsupported, match=why):
                move()
        assert "for control and inspection only" in repr(session)
        assert "for control and inspection only" in session._repr_html_()
        assert "another machine" in session.info["no_dma"]
        session.write(own, b"mine")
        assert session.read(own, 4) == b"mine"
        region.close()
        assert session.stats()["allocated"] == 0


def test_an_agent_of_another_version_is_a_typed_error(dpu, monkeypatch):
    other = m.VERSION + 1
    monkeypatch.setattr(sys.modules["dgkit.session.connect"], "VERSION", other)
    words = rf"speaks wire version {m.VERSION}.*client speaks {other}"
    with pytest.raises(dgkit.PeerVersion, match=words):
        dgkit.connect(dpu.address)


def test_nobody_at_an_address_is_peer_lost_at_once():
    with pytest.raises(dgkit.PeerLost, match="no agent listens"):
        dgkit.connect("ipc:///nowhere/dgkit-no-such-socket")


def test_replies_have_a_bound_that_no_reply_reaches():
    block = m.Block(id=2**62, number=2**31, samples=b"x" * 8 * SAMPLES_A_BLOCK)
    assert len(m.encode(block)) < m.MAX_REPLY
    assert msgspec.msgpack.decode(m.encode(m.Done(id=1))) == [65, 1]
