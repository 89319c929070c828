# SPDX-License-Identifier: Apache-2.0
"""Where this process is the DPU: no thread's work blocks another's for long."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.processes.agents import agent

import dgkit
from dgkit.dpu.copier import Copier
from dgkit.dpu.job import DmaTransferJob, Job, TransferJob
from dgkit.dpu.job_worker import Worker
from dgkit.errors import ClosedError
from dgkit.sizes import LARGE, LARGE_SLOTS

MIB = 1 << 20


@pytest.fixture
def session():
    with agent(role="host") as host, dgkit.connect(host.address) as made:
        yield made


@pytest.fixture
def other():
    with ThreadPoolExecutor(1) as pool:
        yield pool


class PausedJob:
    """Pauses the first copy or digest between two of its chunks, and no other job."""

    def __init__(self, monkeypatch):
        self.began, self.go = threading.Event(), threading.Event()
        jobs, has_next = [], Job._has_next

        def pausing(job):
            if not isinstance(job, TransferJob):
                jobs.append(job)
            if jobs and job is jobs[0] and job.chunks and not self.go.is_set():
                self.began.set()
                return False
            return has_next(job)

        monkeypatch.setattr(Job, "_has_next", pausing)


def start(session, kind, region, other):
    if kind == "digest":
        return other.submit(session.digest, region)
    return other.submit(session.copy, region, session.empty(region.size))


@pytest.mark.parametrize("kind", ["digest", "copy"])
def test_transfers_and_other_digests_go_on_during_a_job(session, other, kind, monkeypatch):
    data = os.urandom(4 * MIB)
    region = session.empty(len(data))
    session.write(region, data)
    paused = PausedJob(monkeypatch)
    job = start(session, kind, region, other)
    assert paused.began.wait(20)
    assert session.read(region, 64) == data[:64]
    session.write(region, data[:64])
    assert session.digest(region) == hashlib.sha256(data).hexdigest()
    assert not job.done()
    paused.go.set()
    job.result(20)


@pytest.mark.parametrize("kind", ["digest", "copy"])
def test_a_job_ends_with_the_session(session, other, kind, monkeypatch):
    region = session.empty(4 * MIB)
    paused = PausedJob(monkeypatch)
    job = start(session, kind, region, other)
    assert paused.began.wait(20)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(20)
    with pytest.raises(ClosedError):
        job.result(20)
    assert not closing.is_alive()


def test_a_region_is_closed_after_the_digest_of_it(session, other, monkeypatch):
    region = session.empty(4 * MIB)
    paused = PausedJob(monkeypatch)
    job = start(session, "digest", region, other)
    assert paused.began.wait(20)
    closing = threading.Thread(target=region.close)
    closing.start()
    paused.go.set()
    assert job.result(20) == hashlib.sha256(bytes(4 * MIB)).hexdigest()
    closing.join(20)
    assert region.closed


def test_after_a_digest_that_was_interrupted_the_next_one_is_right(session, monkeypatch):
    region = session.empty(4 * MIB)
    session.write(region, b"x" * 4 * MIB)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.digest(region)
    assert session.digest(region) == hashlib.sha256(b"x" * 4 * MIB).hexdigest()


def test_a_small_copy_that_was_interrupted_gives_up_its_bounce_memory(session, monkeypatch):
    """A DMA may be in flight to it."""
    region = session.empty(64)
    session.write(region, b"x")
    (used,) = session.dpu.service._small.idle

    def failing(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Copier, "write_small", failing)
        with pytest.raises(KeyboardInterrupt):
            session.write(region, b"y")
    session.write(region, b"z")
    assert session.dpu.service._small.idle[0] is not used
    assert session.read(region, 1) == b"z"


def threads():
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def test_small_transfers_start_no_thread(session):
    before = threads()
    with session.empty(4096) as region:
        session.write(region, b"x" * 4096)
        assert session.start_read(region, 4096).data == b"x" * 4096
        session.copy(region, session.empty(4096))
        session.digest(region)
    assert threads() <= before + 2  # the device's engine, the exporter


def test_the_worker_ends_with_the_session(session):
    with session.empty(MIB) as region:
        session.start_write(region, bytes(MIB)).wait()
    worker = session.dpu.service._worker
    assert worker._running.locked()
    session.close()
    assert not worker._running.locked()


def test_a_digest_is_of_what_was_started_before(session):
    data = os.urandom(64 * MIB)
    region = session.empty(len(data))
    writing = session.start_write(region, data)
    assert session.digest(region) == hashlib.sha256(data).hexdigest()
    assert writing.done()


def test_a_small_transfer_waits_for_no_large_one_to_end(session):
    region = session.empty(64 * MIB)
    large = session.start_read(region, region.size)
    small = session.start_read(region, 64)
    small.wait(20)
    assert large.progress < 1
    large.wait(20)


def all_done(job):
    return all(chunk.step.done() for chunk in job._loading)


def test_a_slot_is_used_again_before_the_next_chunk_is_collected(session, monkeypatch):
    """Else the engine would have nothing to do while the data of a read is copied."""
    calls = []
    for name in ("_dma", "_finish"):
        method = getattr(DmaTransferJob, name)

        def noting(self, *rest, name=name, method=method):
            calls.append(name)
            return method(self, *rest)

        monkeypatch.setattr(DmaTransferJob, name, noting)
    slots = LARGE_SLOTS
    region = session.empty(2 * slots * LARGE)
    advance = Job.advance
    monkeypatch.setattr(Job, "advance", lambda job: all_done(job) and advance(job))
    session.read(region, region.size)
    assert calls[:slots] == ["_dma"] * slots
    assert calls[slots : 3 * slots] == ["_finish", "_dma"] * slots


def test_its_stats_count_what_it_moved_itself(session):
    region = session.empty(4 * MIB)
    session.write(region, bytes(4 * MIB))
    counted = session.stats()
    assert (counted["your_moves"], counted["your_bytes"]) == (2, 4 * MIB)
    session.copy(region, session.empty(4 * MIB))
    assert session.stats()["your_bytes"] == 8 * MIB


def test_transfers_that_start_together_advance_together(session):
    worker, data = session.dpu.service._worker, bytes(16 * LARGE)
    with worker._running:  # so that the worker finds all of them
        transfers = [session.start_write(session.empty(len(data)), data) for _ in range(4)]
        jobs = [*worker.jobs]
        behind: list[int] = []
        end = worker._on_end
        worker._on_end = lambda job: (behind.append(min(each.done for each in jobs)), end(job))
    for transfer in transfers:
        transfer.wait(20)
    assert behind[0] >= len(data) - 2 * LARGE, "the first one ended far before the last one"


@pytest.mark.parametrize(
    ("defect", "seen"), [(AttributeError, AttributeError), (SystemExit, RuntimeError)]
)
def test_a_defect_in_the_worker_reaches_those_who_wait(session, monkeypatch, defect, seen):
    region = session.empty(4 * MIB)

    def fails(_worker):
        raise defect("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_start_chunks", fails)
        with pytest.raises(seen, match="a defect"):
            session.start_write(region, bytes(region.size)).wait()
    session.write(region, bytes(region.size))
