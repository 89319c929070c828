"""Wake-ups of the agent's loop: by its watcher, and straight from the threads with replies."""

import itertools
import threading
from contextlib import closing

import pytest

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
