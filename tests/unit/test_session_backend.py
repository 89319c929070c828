# SPDX-License-Identifier: Apache-2.0
"""Both DPUs of a session satisfy one protocol; one loop cuts a transfer into chunks."""

import ast
import asyncio
import contextlib
import inspect
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes.agents import agent

import dgkit
from dgkit import memory
from dgkit.dpu.job import DigestJob, DmaTransferJob, Job, copy_job
from dgkit.dpu.region_ref import RegionRef
from dgkit.errors import PeerError, PeerTimeout
from dgkit.session import remote_dpu
from dgkit.session.backend import Backend
from dgkit.session.local_dpu import LocalDpu
from dgkit.session.remote_dpu import RemoteDpu, RemoteJob
from dgkit.session.two_agents import TwoAgents
from dgkit.sizes import SMALL, SMALL_SLOTS

MIB = 1 << 20
PACKAGE = Path(dgkit.__file__).parent
METHODS = [name for name, _ in inspect.getmembers(Backend, inspect.isfunction) if name[0] != "_"]


@pytest.fixture(params=["dpu", "host"], ids=["remote", "local"])
def session(request):
    with agent(role=request.param) as running, dgkit.connect(running.address) as made:
        yield made


@pytest.mark.parametrize("kind", [LocalDpu, RemoteDpu, TwoAgents])
@pytest.mark.parametrize("name", METHODS)
def test_each_backend_has_each_method_with_as_many_parameters(kind, name):
    wanted, found = (inspect.signature(getattr(one, name)) for one in (Backend, kind))
    assert len(found.parameters) == len(wanted.parameters)
    assert found.return_annotation == wanted.return_annotation


def test_the_protocol_has_the_work_of_a_dpu():
    work = {"start", "write", "read", "copy", "digest", "latency", "bandwidth", "monitor"}
    assert set(METHODS) == work | {"adopt", "allocate", "forget", "counters", "close"}


def test_a_session_has_the_backend_of_its_role(session):
    kind = {"host": RemoteDpu, "dpu": LocalDpu}[session.role]
    assert type(session.dpu) is kind
    assert session.dpu.provider == "soft"


def test_no_module_of_the_session_asks_which_backend_it_has():
    kinds = {"LocalDpu", "RemoteDpu", "TwoAgents"}
    for path in (PACKAGE / "session").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "type"):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                assert not names & kinds, f"{path.name}:{node.lineno}"


def test_no_job_has_a_chunk_loop_of_its_own():
    kinds = [DigestJob, DmaTransferJob, RemoteJob, TwoAgents._job_type]
    kinds += [type(copy_job(ref(a), 0, ref(b), 0, 64)) for a in (0, 1) for b in (0, 1)]
    for kind in kinds:
        for name in ("start_chunk", "advance", "finished", "fail"):
            assert getattr(kind, name) is getattr(Job, name)


def ref(imported):
    region = SimpleNamespace(size=64, method="map")
    return RegionRef(remote=region) if imported else RegionRef(region=region)


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 2 * MIB, 9 * MIB + 5])
def test_each_backend_moves_each_byte_once(session, size):
    data = bytes(range(256)) * (size // 256 + 1)
    with session.empty(size + 7) as region:
        report = session.write(region, data[:size], offset=3)
        assert report.size == size
        assert session.read(region, size, offset=3) == data[:size]
        assert session.read(region, 3) == bytes(3)
        assert session.read(region, 4, offset=size + 3) == bytes(4)


def test_after_a_cancel_all_staging_slots_are_free_again(session):
    with session.empty(64 * MIB) as region:
        for _ in range(5):
            started = session.start_write(region, bytes(64 * MIB))
            started.cancel()
            with contextlib.suppress(PeerError):  # unless it was done before
                started.wait(20)
        assert session.write(region, bytes(32 * MIB)).size == 32 * MIB
        assert session.read(region, 64) == bytes(64)


def test_a_chunk_that_cannot_be_posted_fails_its_transfer_alone(session, monkeypatch):
    kind = {"host": RemoteJob, "dpu": DmaTransferJob}[session.role]
    move, left = kind._move, [3]

    def failing(self, *how):
        left[0] -= 1
        if left[0] < 0:
            raise PeerError("no more")
        return move(self, *how)

    with session.empty(16 * MIB) as region:
        monkeypatch.setattr(kind, "_move", failing)
        with pytest.raises(PeerError, match="no more"):
            session.write(region, bytes(16 * MIB))
        monkeypatch.undo()
        for _ in range(3):
            assert session.write(region, b"x" * 16 * MIB).size == 16 * MIB
        assert session.read(region, 16 * MIB) == b"x" * 16 * MIB


def test_the_last_reply_ends_a_transfer_once(session):
    ends = []
    with session.empty(8 * MIB) as region:
        started = session.start_read(region, 8 * MIB)
        threads = [threading.Thread(target=lambda: ends.append(started.wait(20))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert len(ends) == 4
    assert {report.size for report in ends} == {8 * MIB}


def test_a_small_slot_is_in_use_as_long_as_its_request_is_pending():
    with agent() as running, dgkit.connect(running.address) as session:
        dpu, region = session.dpu, session.empty(64)
        session.write(region, b"creates the staging memory")
        running.send(signal.SIGSTOP)
        moves = [dpu._move_whole(region, 0, 64, None) for _ in range(SMALL_SLOTS)]
        assert sorted(move.slot for move in moves) == [SMALL * n for n in range(SMALL_SLOTS)]
        assert dpu._move_whole(region, 0, 64, None) is None
        running.send(signal.SIGCONT)
        assert {dpu._wait(move).moved.size for move in moves} == {64}
        assert {move.data[:7] for move in moves} == {b"creates"}
        assert dpu._move_whole(region, 0, 64, None).slot == 0


def test_small_transfers_that_are_started_need_no_thread(monkeypatch):
    monkeypatch.setattr(remote_dpu, "SLOT_WAIT_S", 20.0)
    with agent() as running, dgkit.connect(running.address) as session:
        region, worker = session.empty(64 * 3 * SMALL_SLOTS), session.dpu._worker
        offsets = range(0, region.size, 64)
        writes = [session.start_write(region, b"%064d" % at, offset=at) for at in offsets]
        assert {write.wait(20).size for write in writes} == {64}
        reads = [session.start_read(region, 64, offset=at) for at in offsets]
        assert [read.data for read in reads] == [b"%064d" % at for at in offsets]
        assert not worker._running.locked()

        async def awaited():
            return await session.start_write(region, b"x")

        assert asyncio.run(awaited()).size == 1


def test_an_agent_that_was_asked_nothing_is_not_silent():
    with agent() as running, dgkit.connect(running.address) as session:
        region, worker = session.empty(MIB), session.dpu._worker
        with worker._running:  # so that nothing is sent
            started = session.start_write(region, b"x" * MIB)
            session.dpu.link._last_received -= 60
            with pytest.raises(PeerTimeout, match=f"0 of {MIB:,} bytes"):
                started.wait(0.1)
        assert started.wait(20).size == MIB


def test_the_work_of_transfers_that_wait_is_linear_in_their_number(monkeypatch):
    looks, count, has_next = [], 1000, Job._has_next
    monkeypatch.setattr(Job, "_has_next", lambda job: looks.append(job) or has_next(job))
    with agent() as running, dgkit.connect(running.address) as session:
        region = session.empty(64 * count)
        data = [b"%064d" % number for number in range(count)]
        started = [
            session.start_write(region, each, offset=64 * number)
            for number, each in enumerate(data)
        ]
        for transfer in started:
            transfer.wait(30)
        assert bytes(region.array) == b"".join(data)
        assert len(looks) < 4 * count


def test_thousands_that_wait_for_a_slot_end_with_the_agent_and_make_no_memory(monkeypatch):
    with agent() as running, dgkit.connect(running.address) as session:
        region = session.empty(64)
        session.start_write(region, b"x" * 64).wait()
        running.send(signal.SIGSTOP)  # no slot becomes free
        started = [session.start_write(region, b"x" * 64) for _ in range(3000)]
        monkeypatch.setattr(memory, "empty", lambda *_, **__: pytest.fail("memory was made"))
        running.send(signal.SIGKILL)
        for transfer in started:
            with pytest.raises(PeerError):
                transfer.wait(30)
