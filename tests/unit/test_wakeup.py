# SPDX-License-Identifier: Apache-2.0
"""Wake-ups of the agent's loop: by its watcher, and straight from the threads with replies."""

import itertools
import select
import socket
import threading
from contextlib import closing

import pytest
from support.processes.waiting import until
from support.processes.zmtp import Zmtp

from dgkit.wire.acceptor import Arrivals
from dgkit.wire.listener import Listener
from dgkit.wire.wakeup import Wakeup


@pytest.fixture
def listener():
    with closing(Listener(None, None)) as listener:
        listener.router.rcvtimeo = 5000
        yield listener


def test_a_wake_up_needs_no_other_thread(listener, monkeypatch):
    monkeypatch.setattr(Wakeup, "_run", lambda _: None)
    with Wakeup(listener, (), -1) as wakeup:
        assert listener.router.recv_multipart() == [wakeup.route, Wakeup.EVENT]
        wakeup.wake()
        assert listener.router.recv_multipart() == [wakeup.route, Wakeup.REPLIES]


def test_no_wake_up_of_many_threads_is_lost(listener):
    threads, each = 8, 500
    with Wakeup(listener, (), -1) as wakeup:
        wakers = [
            threading.Thread(target=lambda: [wakeup.wake() for _ in range(each)])
            for _ in range(threads)
        ]
        for waker in wakers:
            waker.start()
        messages = iter(listener.router.recv_multipart, None)
        replies = (parts for parts in messages if parts == [wakeup.route, Wakeup.REPLIES])
        assert len(list(itertools.islice(replies, threads * each))) == threads * each
        for waker in wakers:
            waker.join()


def test_a_wake_up_after_the_end_does_nothing(listener):
    with Wakeup(listener, (), -1) as wakeup:
        pass
    wakeup.wake()


def test_arrivals_are_said_once_until_they_are_rearmed():
    arrivals = Arrivals()

    def said():
        return bool(select.select([arrivals], [], [], 0)[0])

    ours, theirs = socket.socketpair()
    with closing(arrivals), ours, theirs:
        arrivals.add(ours.fileno())
        arrivals.add(ours.fileno())  # a number that is there
        assert not said()
        theirs.send(b"a")
        assert said()
        arrivals.take()
        theirs.send(b"b")
        assert not said()
        ours.recv(9)  # libzmq reads it
        arrivals.rearm()
        assert not said()
        theirs.send(b"c")
        assert said()
        arrivals.take()
        ours.close()
        arrivals.rearm()
        assert not said()


def test_while_all_connections_are_quiet_its_thread_sleeps_until_bytes_arrive(
    listener, monkeypatch
):
    pauses = []
    pause = Wakeup._pause

    def recorded(wakeup, quiet):
        pauses.append(pause(wakeup, quiet))
        return pauses[-1]

    monkeypatch.setattr(Wakeup, "_pause", recorded)
    monkeypatch.setattr("dgkit.wire.wakeup._QUIET_S", 0.2)
    monkeypatch.setattr("dgkit.wire.wakeup._TICK_S", 1000.0)
    client = socket.socket(socket.AF_UNIX)
    with Wakeup(listener, (), -1), client:
        client.connect(str(listener.address.path))
        with Zmtp(client, b"DEALER") as peer:
            until(lambda: (listener.service(), listener.waiting)[1], "it is accepted")
            until(lambda: pauses[-1] == 1000, "the thread sleeps")
            before = len(pauses)

            def woken():
                for _ in range(200):  # libzmq may have read a single one by the time of the look
                    peer.send(bytes(1000))
                return len(pauses) > before

            until(woken, "it is woken")
            until(lambda: pauses[-1] == 1000, "it sleeps again")
