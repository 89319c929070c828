# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at any instant of a staged transfer: the session goes on, and no slot is lost."""

import concurrent.futures
import contextlib
import faulthandler
import hashlib
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from support.interrupting import Interrupting
from support.processes.agents import agent
from support.processes.waiting import stop, until

import dgkit
from dgkit.errors import ClosedError, PeerError, PeerTimeout
from dgkit.sizes import LARGE_SLOTS

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="older versions keep no table of handlers"
    ),
    # A queue is forgotten if the interruption comes before open() returns it, or in a finalizer.
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

MIB = 1 << 20
SIZE = 9 * MIB  # more than the staging memory
COPIES = ("copy", "digest")  # without staging memory
AGENT_OF = {"host": "dpu", "dpu": "host"}  # by the session's role


@pytest.fixture(params=["dpu", "host"], ids=["remote", "local"])
def session(request):
    with agent(role=request.param) as running, dgkit.connect(running.address) as made:
        yield made


def worker_of(session):
    return session.dpu.service._worker if session.role == "dpu" else session.dpu._worker


def is_settled(session):
    worker, link = worker_of(session), session.dpu.link
    used = worker.slots.n_free < LARGE_SLOTS or worker.jobs
    return not used and (session.role == "dpu" or not link.pending)


def in_thread(call):
    """Call from another thread, since locks that the main thread leaked are reentrant for it."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            return future.result(20)
        except concurrent.futures.TimeoutError:
            faulthandler.dump_traceback(all_threads=True)
            os._exit(1)  # neither the thread nor the session could be ended


def settle(session, region):
    """Waits for the end of a transfer whose start() or cancel() was interrupted: it may go on."""
    deadline = time.monotonic() + 10
    while not is_settled(session):
        in_thread(lambda: session.read(region, 1))  # handles replies that still come
        assert time.monotonic() < deadline, "a transfer does not end, or slots are lost"


def check(session, region, fill):
    settle(session, region)
    data = bytes([fill]) * SIZE
    assert in_thread(lambda: session.write(region, data)).size == SIZE
    assert in_thread(lambda: session.read(region, SIZE)) == data
    assert in_thread(lambda: session.digest(region)) == hashlib.sha256(data).hexdigest()
    in_thread(lambda: session.write(region, b"small"))
    settle(session, region)


@pytest.mark.parametrize(
    "kind", ["write", "read", "small write", "small start", "start and cancel", *COPIES]
)
def test_ctrl_c_at_any_bytecode_of_a_transfer_loses_no_slot(session, kind):
    # A small write is 30 such bytecodes.
    step = int(os.environ.get("DGKIT_INTERRUPT_STEP", "2" if "small" in kind else "7"))
    data = b"x" * SIZE

    def cancelled():
        started = session.start_write(region, data)
        started.cancel()
        with contextlib.suppress(PeerError):
            started.wait(10)

    with session.empty(SIZE) as region, session.empty(SIZE) as other:
        calls = {
            "write": lambda: session.write(region, data),
            "read": lambda: session.read(region, SIZE),
            "small write": lambda: session.write(region, b"x" * 100),
            "small start": lambda: session.start_read(region, 100).wait(),
            "start and cancel": cancelled,
            "copy": lambda: session.copy(region, other),
            "digest": lambda: session.digest(region),
        }
        check(session, region, 1)
        number, rounds = 1, 0
        while True:
            interrupting = Interrupting(number)
            try:
                with interrupting:
                    calls[kind]()
            except KeyboardInterrupt:
                pass
            except PeerError as error:
                if "interrupted" not in str(error):
                    raise
            if interrupting.left > 0:
                break
            rounds += 1
            number += step
            if rounds % 8 == 0:
                check(session, region, rounds % 251)
        check(session, region, 255)
        assert rounds > 5


def test_a_transfer_whose_wait_is_interrupted_goes_on(session, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with session.empty(SIZE) as region:
        data = bytes([6]) * SIZE
        started = session.start_write(region, data)
        with monkeypatch.context() as patch:
            patch.setattr(type(worker_of(session)), "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                started.wait(20)
        want = hashlib.sha256(data).hexdigest()
        assert in_thread(lambda: session.digest(region)) == want  # it waits for the transfer
        assert in_thread(lambda: started.wait(10)).size == SIZE
        check(session, region, 7)


def test_a_transfer_that_is_cancelled_with_no_dma_in_flight_is_forgotten_at_once(session):
    with session.empty(SIZE) as region:
        session.write(region, bytes(SIZE))  # makes the staging memory
        worker, stopped = worker_of(session), session.role == "host"
        if stopped:
            stop(session.info["dpu"]["pid"])
        try:
            first = session.start_write(region, bytes(SIZE))
            until(lambda: not (stopped and worker.slots.n_free), "the first one has all slots")
            waiting = [session.start_write(region, bytes(SIZE)) for _ in range(100)]
            assert not (stopped and any(transfer.done() for transfer in waiting * 3))
            cancel_and_forget(waiting)
            until(lambda: list(worker.jobs) in ([first._job], []), "the others are ended")
        finally:
            os.kill(session.info[AGENT_OF[session.role]]["pid"], signal.SIGCONT)
        assert first.wait(20).size == SIZE
        check(session, region, 4)


def cancel_and_forget(transfers):
    refs = [weakref.ref(transfer) for transfer in transfers]
    while transfers:
        transfers.pop().cancel()
    assert not any(ref() for ref in refs)


def test_large_transfers_under_a_stop_of_five_seconds_end_with_the_right_bytes(session):
    """The host's agent moves no bytes, so nothing may even notice that it is stopped."""
    pid = session.info[AGENT_OF[session.role]]["pid"]
    with contextlib.ExitStack() as stack:
        regions = [stack.enter_context(session.empty(SIZE)) for _ in range(4)]
        check(session, regions[0], 7)
        data = [bytes([number]) * SIZE for number in range(1, 5)]
        started = [session.start_write(*pair) for pair in zip(regions, data, strict=True)]
        stop(pid)
        continued = threading.Timer(5, os.kill, (pid, signal.SIGCONT))
        continued.start()
        for transfer in started:
            with contextlib.suppress(PeerTimeout):  # says that the agent's process is stopped
                transfer.wait(5)
        continued.join()
        assert [transfer.wait(20).size for transfer in started] == [SIZE] * 4
        for region, written in zip(regions, data, strict=True):
            assert session.read(region, SIZE) == written
        check(session, regions[0], 8)


def test_a_slot_is_not_given_to_a_transfer_that_was_cancelled_while_it_waited(session):
    with session.empty(SIZE) as region:
        session.write(region, bytes(SIZE))
        pid = session.owned_pid or session.info["dpu"]["pid"]
        for _ in range(3):
            if session.role == "host":
                os.kill(pid, signal.SIGSTOP)
            try:
                started = [session.start_write(region, bytes(SIZE)) for _ in range(4)]
                for transfer in started:
                    transfer.cancel()
            finally:
                if session.role == "host":
                    os.kill(pid, signal.SIGCONT)
            check(session, region, 3)


@pytest.mark.parametrize("side", ["remote", "local"])
def test_ctrl_c_at_any_bytecode_of_close_leaves_a_session_that_closes(side):
    step = int(os.environ.get("DGKIT_INTERRUPT_STEP", "31"))
    number = rounds = 0
    with agent(role={"remote": "dpu", "local": "host"}[side]) as running:
        while True:
            # The first bytecodes, where the thread takes the closing over, one by one.
            number += 1 if number < 30 else step
            session = dgkit.connect(running.address)
            region = session.empty(4096)
            session.write(region, b"x")
            interrupting = Interrupting(number)
            with contextlib.suppress(KeyboardInterrupt), interrupting:
                session.close()
            if interrupting.left > 0:
                break
            rounds += 1
            in_thread(session.close)
            assert session.closed, f"at bytecode {number}"
            assert session.device.closed, f"at bytecode {number}"
            assert not session.regions, f"at bytecode {number}"
            with pytest.raises(ClosedError):
                session.stats()
        assert session.closed
        assert rounds > 30


def test_ctrl_c_in_close_leaves_no_software_dpu():
    for number in (2, 3, 4, 5, 40):
        session = dgkit.connect()
        with contextlib.suppress(KeyboardInterrupt), Interrupting(number):
            session.close()
        session.close()
        assert not Path(f"/proc/{session.owned_pid}").exists(), f"at bytecode {number}"
