"""What a connection to the telemetry socket holds is given back, whenever its descriptor closes."""

import os
from types import SimpleNamespace

import pytest
import zmq

from dgkit.agent.account import Account
from dgkit.agent.agent_limits import Limits
from dgkit.agent.telemetry import Telemetry
from dgkit.wire.listener import Caller
from tests.support.processes.waiting import until


@pytest.fixture
def account():
    return Account("user", Limits(memory=1 << 30).quota(0))


@pytest.fixture
def telemetry(account):
    def nothing(*_, **__):
        raise zmq.Again

    socket = SimpleNamespace(recv=nothing)
    listener = SimpleNamespace(publisher=lambda: (socket, "inproc://unused"))
    return Telemetry(listener, "soft", lambda _: account, shared=False)


def charge(telemetry, fd):
    caller = Caller(fd, os.getpid(), os.geteuid())
    return telemetry._charge(os.urandom(5), caller, 7)


def test_a_descriptor_that_closes_after_its_event_is_given_back(telemetry, account):
    """libzmq reports the end of a connection before it closes the descriptor."""
    first, second = os.memfd_create("first"), os.memfd_create("second")
    try:
        charge(telemetry, first)
        telemetry.ended(first)
        assert account.used["subscriptions"] == 1, "it may be the successor's by now"
    finally:
        os.close(first)
    try:
        charge(telemetry, second)
        assert (account.used["subscriptions"], account.used["descriptors"]) == (1, 1)
    finally:
        os.close(second)
    telemetry.ended(second)
    assert not any(account.used.values())


@pytest.mark.parametrize("reported", ["before it is charged", "before it closes"])
def test_a_descriptor_that_closes_late_is_given_back_without_another_subscription(
    telemetry, account, reported
):
    descriptor = os.memfd_create("late")
    if reported == "before it is charged":
        telemetry.ended(descriptor)
    charge(telemetry, descriptor)
    if reported == "before it closes":
        telemetry.ended(descriptor)
    telemetry.flush()
    assert account.used["subscriptions"] == 1
    os.close(descriptor)
    until(lambda: telemetry.flush() or not any(account.used.values()), "it is given back")


def test_a_subscription_whose_connection_has_ended_is_not_charged(telemetry, account):
    descriptor = os.memfd_create("ended")
    os.close(descriptor)
    assert charge(telemetry, descriptor) is None
    assert not any(account.used.values())
