# SPDX-License-Identifier: Apache-2.0
"""A reply that Ctrl-C lost between libzmq and its dispatch: its request ends at once, and right."""

import asyncio
import concurrent.futures
import hashlib
import os
import signal
import threading
import time

import pytest
from support.processes.agents import agent
from support.processes.waiting import stop, until

import dgkit
from dgkit.errors import PeerError
from dgkit.wire import messages as m

MIB = 1 << 20


@pytest.fixture
def session():
    with agent() as running, dgkit.connect(running.address) as made:
        yield made


def lose(link, monkeypatch, then=lambda: None):
    """Receives a reply and drops it, as pyzmq does if a signal arrives while it returns one.

    A slow agent reports progress before its reply, which would be no loss. `then` is called when
    no other thread can receive any more.
    """
    receive = link._receive

    def lost(message):
        if type(m.decode_reply(message)) is not m.Progress:
            raise KeyboardInterrupt
        receive(message)

    def interrupted():
        try:
            link.pump()
        except KeyboardInterrupt:
            return True
        return False

    with link.lock, monkeypatch.context() as patch:
        patch.setattr(link, "_receive", lost)
        then()
        until(interrupted, "a reply is lost")


@pytest.fixture
def bystander(session, monkeypatch):
    """Call in another thread, whose first reply is lost by this one; its future.

    The agent stands still meanwhile: a thread that posts several requests receives replies, too.
    """
    link, pid = session.dpu.link, session.info["dpu"]["pid"]
    real_wait, may_wait = link.wait, threading.Event()

    def wait(*args):
        assert may_wait.wait(20)
        return real_wait(*args)

    def call(function):
        monkeypatch.setattr(link, "wait", wait)
        stop(pid)
        try:
            future = pool.submit(function)
            until(lambda: link.pending, "the request was sent")
            lose(link, monkeypatch, then=lambda: os.kill(pid, signal.SIGCONT))
        finally:
            os.kill(pid, signal.SIGCONT)
        may_wait.set()
        return future

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield call


def filled(session, byte, size=4 * MIB):
    region = session.empty(size)
    session.write(region, b"small")  # makes the staging memory, too
    session.write(region, bytes([byte]) * size)
    return region


def test_a_digest_whose_reply_is_lost_is_made_once_more(session, bystander):
    region = filled(session, 5)
    start = time.monotonic()
    future = bystander(lambda: session.digest(region))
    assert future.result(10) == hashlib.sha256(bytes([5]) * region.size).hexdigest()
    assert time.monotonic() - start < 5


def test_a_copy_whose_reply_is_lost_is_made_once_more(session, bystander):
    source, target = filled(session, 5), filled(session, 6)
    assert bystander(lambda: session.copy(source, target)).result(10).size == source.size
    assert session.read(target, target.size) == bytes([5]) * target.size


@pytest.mark.parametrize("size", [100, 9 * MIB])
def test_a_write_whose_reply_is_lost_is_made_once_more(session, bystander, size):
    region = filled(session, 1, 9 * MIB)
    data = bytes([7]) * size
    future = bystander(lambda: session.start_write(region, data).wait())
    assert future.result(10).size == size
    assert session.read(region, size) == data


def test_a_started_write_whose_reply_is_lost_does_not_replace_a_later_write(session, monkeypatch):
    region, pid = filled(session, 1), session.info["dpu"]["pid"]
    stop(pid)
    try:
        first = session.start_write(region, b"first")
        lose(session.dpu.link, monkeypatch, then=lambda: os.kill(pid, signal.SIGCONT))
    finally:
        os.kill(pid, signal.SIGCONT)
    session.stats()  # notices the loss
    session.write(region, b"later")
    assert first.wait(10).size == 5
    assert session.read(region, 5) == b"later"


def test_an_awaited_read_whose_reply_is_lost_is_made_once_more(session, bystander):
    async def read():
        await (started := session.start_read(region, 100))
        return started.data

    region = filled(session, 8)
    assert bystander(lambda: asyncio.run(read())).result(10) == bytes([8]) * 100


def test_a_small_write_whose_reply_is_lost_is_made_once_more(session, bystander, monkeypatch):
    region = filled(session, 1)
    monkeypatch.setattr(session.dpu.link, "exchange", lambda *_: None)  # it never loses the reply
    assert bystander(lambda: session.write(region, b"x" * 100)).result(10).size == 100
    assert session.read(region, 100) == b"x" * 100


@pytest.mark.parametrize("size", [100, 9 * MIB])
def test_a_read_whose_reply_is_lost_is_made_once_more(session, bystander, size):
    region = filled(session, 8, 9 * MIB)
    assert bystander(lambda: session.read(region, size)).result(10) == bytes([8]) * size


@pytest.mark.parametrize("what", ["stats", "monitor", "empty"])
def test_another_request_whose_reply_is_lost_fails_at_once_and_says_why(session, bystander, what):
    region = filled(session, 1)
    call = {
        "stats": session.stats,
        "monitor": lambda: session.monitor(region),
        "empty": lambda: session.empty(4096),
    }[what]
    start = time.monotonic()
    with pytest.raises(PeerError, match="interrupted"):
        bystander(call).result(10)
    assert time.monotonic() - start < 4
    assert session.digest(region, 1)


def test_requests_that_the_agent_still_works_on_are_not_given_up(session, monkeypatch):
    link, region = session.dpu.link, filled(session, 9, 64 * MIB)
    request = m.Digest(region=region.handle, offset=0, size=region.size)
    digests = [link.post(request) for _ in range(3)]
    lose(link, monkeypatch)
    for pending in digests:
        assert link.wait(pending, 20)
    ends = [type(pending.error).__name__ for pending in digests]
    assert ends == ["ReplyLost", "NoneType", "NoneType"]
    want = hashlib.sha256(bytes([9]) * region.size).hexdigest()
    assert {pending.result().digested.sha256 for pending in digests[1:]} == {want}


def test_a_request_is_not_done_until_its_reply_is_handled(session):
    link, region, interruptions = session.dpu.link, filled(session, 9), [KeyboardInterrupt]

    def then(_):
        if interruptions:
            raise interruptions.pop()

    for handle in (region.handle, 1 << 40):
        interruptions[:] = [KeyboardInterrupt]
        pending = link.post(m.Digest(region=handle, offset=0, size=64), then=then)
        with pytest.raises(KeyboardInterrupt):
            link.wait(pending, 20)
        assert (pending.done, interruptions) == (False, [])
        assert link.wait(pending, 20)
        assert pending.then is None


def test_an_agent_says_which_requests_it_has_not_answered(session):
    link, region = session.dpu.link, filled(session, 9, 64 * MIB)
    request = m.Digest(region=region.handle, offset=0, size=region.size)
    digests = [link.post(request) for _ in range(3)]
    with session.monitor(region, size=8) as monitor:
        first = set(link.ask(m.Outstanding()).numbers)
        assert monitor is not None
    assert digests[-1].number in first
    assert first <= {pending.number for pending in digests}
    for pending in digests:
        assert link.wait(pending, 20)
    assert link.ask(m.Outstanding()).numbers == []


def test_a_request_that_was_interrupted_before_it_was_sent_leaves_nothing(session, monkeypatch):
    link, region = session.dpu.link, filled(session, 9)
    with monkeypatch.context() as patch:

        def interrupted(*_):
            raise KeyboardInterrupt

        patch.setattr(link, "_send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.digest(region)
    assert len(link.pending) == 1
    assert session.digest(region)
    until(lambda: session.digest(region) and not link.pending, "the request is forgotten")
