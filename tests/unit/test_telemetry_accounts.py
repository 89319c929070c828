# SPDX-License-Identifier: Apache-2.0
"""What a connection to the telemetry socket holds is given back, whenever its descriptor closes.

A message ends its own connection only, also if another has its descriptor by then.
"""

import contextlib
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from dgkit.agent.account import Account
from dgkit.agent.agent_limits import Limits
from dgkit.agent.telemetry_publisher import Telemetry
from dgkit.schema import Sampled
from dgkit.wire.address import parse
from dgkit.wire.listener import Caller, Listener
from dgkit.wire.messages import SUBSCRIBED, Published, Subscription, decode_published, encode
from tests.support.processes.waiting import until
from tests.support.processes.zmtp import Zmtp


@pytest.fixture
def account():
    return Account("user", Limits(memory=1 << 30).quota(0))


@pytest.fixture
def telemetry(account):
    def nothing(*_, **__):
        raise zmq.Again

    socket = SimpleNamespace(recv=nothing)
    listener = SimpleNamespace(
        publisher=lambda: (socket, "inproc://unused"), subscriptions_read=lambda: None
    )
    return Telemetry(listener, "soft", lambda _: account, shared=False)


def charge(telemetry, fd):
    caller = Caller(fd, os.getpid(), os.geteuid())
    return telemetry._charge(os.urandom(5), caller, 7)


def test_a_descriptor_that_closes_after_its_event_is_given_back(telemetry, account):
    """libzmq reports the end of a connection before it closes the descriptor."""
    first, second = os.memfd_create("first"), os.memfd_create("second")
    try:
        charge(telemetry, first)
        telemetry.refund_connection(first)
        assert account.used["subscriptions"] == 1, "it may be the successor's by now"
    finally:
        os.close(first)
    try:
        charge(telemetry, second)
        assert (account.used["subscriptions"], account.used["descriptors"]) == (1, 1)
    finally:
        os.close(second)
    telemetry.refund_connection(second)
    assert not any(account.used.values())


@pytest.mark.parametrize("reported", ["before it is charged", "before it closes"])
def test_a_descriptor_that_closes_late_is_given_back_without_another_subscription(
    telemetry, account, reported
):
    descriptor = os.memfd_create("late")
    if reported == "before it is charged":
        telemetry.refund_connection(descriptor)
    charge(telemetry, descriptor)
    if reported == "before it closes":
        telemetry.refund_connection(descriptor)
    telemetry.flush()
    assert account.used["subscriptions"] == 1
    os.close(descriptor)
    until(lambda: telemetry.flush() or not any(account.used.values()), "it is given back")


def test_a_subscription_whose_connection_has_ended_is_not_charged(telemetry, account):
    descriptor = os.memfd_create("ended")
    os.close(descriptor)
    assert charge(telemetry, descriptor) is None
    assert not any(account.used.values())


def _dial(telemetry, waiting):
    """Connect a raw client to the telemetry; `waiting` is its socket, made before."""
    waiting.connect(str(parse(telemetry.endpoint).path))
    return Zmtp(waiting, b"DEALER")


@contextlib.contextmanager
def _other_process(telemetry):
    """Have another process connect, send what it is told, and end; yield a socket to it."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        try:
            theirs.recv(1)
            peer = _dial(telemetry, socket.socket(socket.AF_UNIX))
            theirs.send(b"+")
            for each in theirs.recv(4096).split(b"|"):
                peer.send(each)
            theirs.send(b"+")
            theirs.recv(1)
        finally:
            os._exit(0)
    theirs.close()  # before the connection, which would get a higher number otherwise
    with ours:
        ours.send(b"+")
        yield ours
        os.waitpid(pid, 0)


def _connections(listener):
    """Return the descriptors of the connections to the telemetry, as far as events were read."""
    listener.service()
    return set(listener._acceptors[-1]._connections)


@pytest.mark.parametrize(
    "first", [[], [encode(Subscription(monitor=5, credit=1))]], ids=["unknown", "subscribed"]
)
@pytest.mark.parametrize("subscribed", [True, False], ids=["subscriber", "newcomer"])
@pytest.mark.parametrize("serviced", [True, False], ids=["events read", "events unread"])
def test_a_late_message_of_an_ended_connection_ends_no_other(account, first, subscribed, serviced):
    """The kernel gives a new connection the lowest number, which the ended one had."""
    with contextlib.ExitStack() as undo:
        listener = Listener(None, None)
        undo.callback(listener.close)
        telemetry = Telemetry(listener, "soft", lambda _: account, shared=False)
        waiting = undo.enter_context(socket.socket(socket.AF_UNIX))
        hostile = undo.enter_context(_other_process(telemetry))
        assert hostile.recv(1)
        until(lambda: _connections(listener), "the first connection")
        telemetry.receive()
        (number,) = _connections(listener)
        hostile.send(b"|".join([*first, b"\x99 no subscription"]))
        assert hostile.recv(1)
        time.sleep(0.1)  # libzmq has read the messages
        hostile.send(b"-")
        until(lambda: not Path(f"/proc/self/fd/{number}").exists(), "it is closed")
        honest = undo.enter_context(_dial(telemetry, waiting))
        if subscribed:
            honest.send(encode(Subscription(monitor=7, credit=1)))
            time.sleep(0.1)
        if serviced:
            until(lambda: number in _connections(listener), "the second connection")
        telemetry.receive()
        assert _connections(listener) == {number}
        if not subscribed:
            honest.send(encode(Subscription(monitor=7, credit=1)))
            until(lambda: telemetry.receive() or len(telemetry._readers[7]), "its subscription")
        assert honest.read_frame() == SUBSCRIBED
        block = Sampled(number=0, t_ns=0, provider="soft", source="move", samples=b"")
        telemetry.send(Published(monitor=7, block=block))
        assert decode_published(honest.read_frame()).monitor == 7
        assert not listener.waiting, "no deadline ends it"


def test_a_message_that_breaks_the_protocol_ends_its_connection(account):
    with contextlib.ExitStack() as undo:
        listener = Listener(None, None)
        undo.callback(listener.close)
        telemetry = Telemetry(listener, "soft", lambda _: account, shared=False)
        hostile = undo.enter_context(_dial(telemetry, socket.socket(socket.AF_UNIX)))
        until(lambda: _connections(listener), "the connection")
        telemetry.receive()
        hostile.send(b"\x99 no subscription")
        until(lambda: telemetry.receive() or not _connections(listener), "its end")
