"""Where this process is the DPU: no thread's work blocks another's for long."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.dma._ffi import ffi, lib
from dgkit.errors import ClosedError
from dgkit.session import local_dpu
from dgkit.session.fair_lock import FairLock
from dgkit.session.local_dpu import LocalTransfer

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
    """Pauses a copy or a digest between two of its chunks."""

    def __init__(self, session, monkeypatch):
        self.began, self.go = threading.Event(), threading.Event()
        copiers = session.dpu._copiers
        step = copiers.check_open

        def pausing(done=0):
            if done:
                self.began.set()
                assert self.go.wait(20)
            step(done)

        monkeypatch.setattr(copiers, "check_open", pausing)


def start(session, kind, region, other):
    if kind == "digest":
        return other.submit(session.digest, region)
    return other.submit(session.copy, region, session.empty(region.size))


@pytest.mark.parametrize("kind", ["digest", "copy"])
def test_transfers_and_other_digests_go_on_during_a_job(session, other, kind, monkeypatch):
    data = os.urandom(4 * MIB)
    region = session.empty(len(data))
    session.write(region, data)
    paused = PausedJob(session, monkeypatch)
    job = start(session, kind, region, other)
    assert paused.began.wait(20)
    assert session.read(region, 64) == data[:64]
    session.write(region, data[:64])
    monkeypatch.setattr(session.dpu._copiers, "check_open", lambda _=0: None)
    assert session.digest(region) == hashlib.sha256(data).hexdigest()
    assert not job.done()
    paused.go.set()
    job.result(20)


@pytest.mark.parametrize("kind", ["digest", "copy"])
def test_a_job_ends_with_the_session(session, other, kind, monkeypatch):
    region = session.empty(4 * MIB)
    paused = PausedJob(session, monkeypatch)
    job = start(session, kind, region, other)
    assert paused.began.wait(20)
    closing = threading.Thread(target=session.close)
    closing.start()
    until(lambda: session.dpu._copiers._closed, "it is being closed")
    paused.go.set()
    closing.join(20)
    with pytest.raises(ClosedError):
        job.result(20)
    assert not closing.is_alive()


def test_a_region_is_closed_after_the_digest_of_it(session, other, monkeypatch):
    region = session.empty(4 * MIB)
    paused = PausedJob(session, monkeypatch)
    job = start(session, "digest", region, other)
    assert paused.began.wait(20)
    closing = threading.Thread(target=region.close)
    closing.start()
    paused.go.set()
    assert job.result(20) == hashlib.sha256(bytes(4 * MIB)).hexdigest()
    closing.join(20)
    assert region.closed


def test_after_a_digest_that_failed_the_next_one_is_right(session, monkeypatch):
    region = session.empty(4 * MIB)
    session.write(region, b"x" * 4 * MIB)

    def failing(_request, ref, copier, step):
        copier.queue.read(copier.bounce, ref.as_remote(), size=MIB)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(local_dpu, "digest", failing)
        with pytest.raises(KeyboardInterrupt):
            session.digest(region)
    assert session.digest(region) == hashlib.sha256(b"x" * 4 * MIB).hexdigest()


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


def test_a_slot_is_used_again_before_the_next_chunk_is_collected(session, monkeypatch):
    """Else the engine would have nothing to do while the data of a read is copied."""
    calls = []
    for name in ("_post", "_finish_chunk"):
        method = getattr(LocalTransfer, name)

        def noting(self, chunk, *rest, name=name, method=method):
            calls.append(name)
            return method(self, chunk, *rest)

        monkeypatch.setattr(LocalTransfer, name, noting)
    slots = local_dpu.SLOTS
    region = session.empty(2 * slots * local_dpu.SLOT)
    transfer = session.start_read(region, region.size)
    until(lambda: all(chunk.request.done() for chunk in transfer._in_flight), "each DMA")
    transfer.wait(20)
    assert calls[:slots] == ["_post"] * slots
    assert calls[slots : 3 * slots] == ["_finish_chunk", "_post"] * slots


def test_a_waiting_thread_gets_the_lock_before_the_releasing_one(other):
    lock, order = FairLock(), []

    def again_and_again():
        for _ in range(2):
            with lock, lock:
                order.append("again")
                if len(order) == 1:
                    begun.set()
                    until(lock._gate.locked, "the other one waits")

    begun = threading.Event()
    first = other.submit(again_and_again)
    assert begun.wait(20)
    with lock:
        order.append("other")
    first.result(20)
    assert order == ["again", "other", "again"]


def test_its_stats_count_what_it_moved_itself(session):
    region = session.empty(4 * MIB)
    session.write(region, bytes(4 * MIB))
    counted = session.stats()
    assert (counted["your_moves"], counted["your_bytes"]) == (2, 4 * MIB)
    session.copy(region, session.empty(4 * MIB))
    assert session.stats()["your_bytes"] == 8 * MIB


@pytest.mark.parametrize("what", ["wait", "digest"])
def test_a_call_goes_on_after_another_thread_was_interrupted_in_the_queue(session, what):
    data = os.urandom(32 * MIB)
    with session.empty(len(data)) as region:
        writing = session.start_write(region, data)
        with session.dpu.lock:
            taken = lib.dg_transfer_wait(writing.oldest()._ticket, 10**10, ffi.new("dg_wc *"))
            session.dpu.note_interruption()  # as Ctrl-C does that loses a completion
        assert taken == 0
        if what == "digest":
            assert session.digest(region) == hashlib.sha256(data).hexdigest()
        assert writing.wait(20).size == len(data)
        assert session.read(region, len(data)) == data
