# SPDX-License-Identifier: Apache-2.0
"""Messages that are none, clients without the right key, and more than is good: the agent lives."""

import contextlib
import os
import socket
import struct

import msgspec
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.errors import PeerLost, PeerRefused, PeerVersion
from dgkit.schema import LatencyTask
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse
from dgkit.wire.error_codec import to_exception

HELLO = m.Hello(id=0, version=m.VERSION, pid=17, boot="boot", machine="machine", package="0.1.0")


@pytest.fixture(scope="module")
def running():
    with agent() as one:
        yield one


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)


class Raw:
    """A client that says what it likes."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = -1
        self.socket.connect(parse(address).endpoint)

    def ask(self, *parts: bytes):
        self.socket.send_multipart(parts)
        return self.reply()

    def reply(self):
        assert self.socket.poll(5000), "no reply"
        return m.decode_reply(self.socket.recv())

    def close(self):
        self.socket.close()
        self.context.term()


@pytest.fixture
def raw(running):
    one = Raw(running.address)
    yield one
    one.close()


def _works(running):
    with dgkit.connect(running.address) as session, session.empty(64) as region:
        session.write(region, b"fine")
        assert session.read(region, 4) == b"fine"


def test_messages_without_a_sender_are_dropped_and_no_internal_error():
    with agent() as served, socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(parse(served.address).path))
        stranger.sendall(b"\x01\0" * 2000)  # ZMTP 1.0: no name, then empty messages
        _works(served)
        with dgkit.connect(served.address) as session:
            until(lambda: session.stats()["uptime_ns"] > 200_000_000, "all are read")
            assert session.stats()["internal_errors"] == 0


DEEP = b"\x91" * 20_000 + b"\xc0"  # an array in an array in an array...


@pytest.mark.parametrize(
    "body",
    [
        lambda number: msgspec.msgpack.encode([8, number, 1, 0, 64, 1, 1.5, 0]),
        lambda number: msgspec.msgpack.encode([9, number, 1, 64, 1, True, 1.0, 0]),
        lambda number: msgspec.msgpack.encode([99, number]),
        lambda number: msgspec.msgpack.encode([6, number]),
        lambda number: b"\x93\x0b" + msgspec.msgpack.encode(number) + DEEP,
    ],
    ids=["fraction", "bool", "unknown", "short", "deep"],
)
def test_a_request_that_cannot_be_read_fails_alone(running, raw, body):
    number = raw.ask(m.encode(HELLO)).first_id
    failed = raw.ask(body(number))
    assert (type(failed), failed.id, failed.kind) == (m.Failed, number, "PeerError")
    assert "cannot read this request" in failed.text
    assert raw.ask(m.encode(m.Stats(id=number + 1))).id == number + 1
    _works(running)


@pytest.mark.parametrize("number", [-1, 2**63, 1.5, "x", None, 0])
def test_what_has_no_number_that_can_be_fails_without_one(running, raw, number):
    first = raw.ask(m.encode(HELLO)).first_id
    failed = raw.ask(msgspec.msgpack.encode([99, number]))
    assert (type(failed), failed.id) == (m.Failed, 0)
    assert raw.ask(m.encode(m.Stats(id=first))).id == first


def test_a_deep_first_message_is_refused(running, raw):
    assert isinstance(to_exception(raw.ask(b"\x93\x0b\x01" + DEEP)), dgkit.PeerError)
    assert raw.ask(m.encode(HELLO)).version == m.VERSION
    _works(running)


def test_a_first_message_that_is_no_hello_is_refused_and_a_hello_may_follow(raw):
    for parts in (
        (b"",),
        (b"garbage",),
        (m.encode(m.Stats(id=1)),),
        (b"two", b"parts"),
        (b"", b"", b""),
    ):
        assert isinstance(to_exception(raw.ask(*parts)), dgkit.PeerError)
    assert raw.ask(m.encode(HELLO)).version == m.VERSION


def test_another_version_is_told_apart_whatever_else_it_says(raw):
    longer = [1, 0, m.VERSION + 1, 17, "boot", "machine", "9.9", {"new": True}]
    import msgspec

    assert isinstance(to_exception(raw.ask(msgspec.msgpack.encode(longer))), PeerVersion)


def test_a_client_starts_at_the_number_that_it_was_told(raw):
    first = raw.ask(m.encode(HELLO)).first_id
    assert isinstance(to_exception(raw.ask(m.encode(m.Stats(id=first - 1)))), dgkit.PeerError)
    assert raw.ask(m.encode(m.Stats(id=first))).id == first
    assert isinstance(to_exception(raw.ask(m.encode(m.Stats(id=first)))), dgkit.PeerError)
    assert isinstance(to_exception(raw.ask(b"x", m.encode(m.Stats(id=first + 1)))), dgkit.PeerError)
    again = raw.ask(
        m.encode(m.Hello(id=first + 2, version=m.VERSION, pid=1, boot="", machine="", package=""))
    )
    assert "second Hello" in again.text
    assert raw.ask(m.encode(m.Stats(id=first + 3))).id == first + 3


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_a_client_sends_gets_a_reply_and_the_agent_lives(running, data):
    raw = Raw(running.address)
    try:
        number = raw.ask(m.encode(HELLO)).first_id
        for _ in range(5):
            message = data.draw(st.one_of(st.binary(max_size=300), _mutated(number)))
            reply = raw.ask(message)
            assert reply.id >= 0
            number = max(number, reply.id + 1)
    finally:
        raw.close()


def _mutated(number: int):
    """A valid request with one byte changed, cut, or doubled."""
    valid = [
        m.Allocate(id=number, size=64, access=3, export=True, name="n"),
        m.Import(id=number, token=os.urandom(100)),
        m.Move(id=number, src=1, src_offset=0, dst=1, dst_offset=0, size=64),
        m.Digest(id=number, region=1, offset=0, size=64),
        m.Export(id=number, region=1, access=1),
        m.Cancel(id=number, target=number),
        m.Free(id=number, region=1, timeout=0.0),
        m.Latency(
            id=number, region=1, task=LatencyTask(offset=0, size=8, op=1, samples=10, path=0)
        ),
        m.Stats(id=number),
    ]

    def change(parts):
        request, at, byte, how = parts
        message = bytearray(m.encode(request))
        at %= len(message)
        if how == 0:
            message[at] = byte
        elif how == 1:
            del message[at:]
        else:
            message[at:at] = message[at:]
        return bytes(message)

    index = st.integers(0, 400)
    return st.tuples(st.sampled_from(valid), index, st.integers(0, 255), st.integers(0, 2)).map(
        change
    )


def test_the_agent_works_after_all_that(running):
    _works(running)


def test_a_message_larger_than_a_request_may_be_ends_the_connection_and_no_more(running, raw):
    raw.ask(m.encode(HELLO))
    monitor = raw.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    raw.socket.send(b"x" * (m.MAX_REQUEST + 1))
    assert monitor.poll(5000), "libzmq drops the connection"
    assert struct.unpack("=Hi", monitor.recv_multipart()[0])[0] == zmq.EVENT_DISCONNECTED
    raw.socket.disable_monitor()
    monitor.close()
    _works(running)


def test_a_request_that_is_too_large_is_refused_before_it_is_sent(running):
    with dgkit.connect(running.address) as session:
        with pytest.raises(ValueError, match="the limit is 65536"):
            session._link.post(m.Import(token=b"x" * m.MAX_REQUEST))
        assert session.stats()["clients"] >= 1


def test_a_descriptor_that_is_none_is_refused_by_the_agent(running):
    with dgkit.connect(running.address) as session:
        good = session.empty(64).token
        for token in (b"", b"x", good[:-1], bytes(len(good)), good[:40] + bytes(8) + good[48:]):
            with pytest.raises(dgkit.DgkitError):
                session._link.ask(m.Import(token=token))
        assert session.stats()["your_regions"] == 1


def test_bursts_of_requests_are_all_answered_in_order(running, raw):
    number = raw.ask(m.encode(HELLO)).first_id
    for _ in range(20):
        burst = range(number, number + 500)
        for each in burst:
            raw.socket.send(m.encode(m.Stats(id=each)))
        assert [raw.reply().id for _ in burst] == [*burst]
        number += 500
    _works(running)


def test_a_client_that_sends_faster_than_it_is_answered_ends_and_others_go_on(running, raw):
    number = raw.ask(m.encode(HELLO)).first_id
    raw.socket.sndtimeo = 0
    with contextlib.suppress(zmq.Again):  # the agent has ended the connection
        for each in range(number, number + 200_000):
            raw.socket.send(m.encode(m.Stats(id=each)))
    _works(running)


def test_a_client_that_never_reads_holds_up_nobody(running):
    raw = Raw(running.address)
    try:
        number = raw.ask(m.encode(HELLO)).first_id
        for _ in range(3000):
            raw.socket.send(m.encode(m.Stats(id=number)))
            number += 1
        _works(running)
    finally:
        raw.close()


def test_a_key_that_is_not_allowed_is_refused_at_once(own_keys):
    keys.make("stranger")
    with agent(address="tcp://127.0.0.1:0") as one:
        with pytest.raises(PeerRefused, match="does not allow this client's key"):
            dgkit.connect(one.address, keys="stranger", timeout=30.0)
        keys.allow(keys.load("stranger").public)
        dgkit.connect(one.address, keys="stranger").close()
        dgkit.connect(one.address).close()


def test_a_wrong_key_of_the_agent_is_refused_at_once(own_keys):
    other = keys.make("other").public
    with (
        agent(address="tcp://127.0.0.1:0") as one,
        pytest.raises(PeerRefused, match="not the one in the address"),
    ):
        dgkit.connect(one.address.partition("?")[0] + f"?key={other}", timeout=30.0)


def test_an_address_without_a_key_and_a_client_without_keys_are_told_what_to_do(
    own_keys, tmp_path, monkeypatch
):
    with pytest.raises(PeerRefused, match="needs the agent's public key"):
        dgkit.connect("tcp://127.0.0.1:1")
    with pytest.raises(PeerRefused, match="dgkit keys make none"):
        dgkit.connect(f"tcp://127.0.0.1:1?key={'ab' * 32}", keys="none")


def test_a_client_that_speaks_no_curve_gets_nothing_and_the_agent_lives(own_keys):
    with agent(address="tcp://127.0.0.1:0") as one:
        raw = Raw(one.address)
        monitor = raw.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        raw.socket.send(m.encode(HELLO))
        try:
            assert monitor.poll(5000), "the handshake fails"
            assert not raw.socket.poll(0)
        finally:
            raw.socket.disable_monitor()
            monitor.close()
            raw.close()
        _works(one)


def test_a_tcp_port_where_nobody_listens_is_peer_lost(own_keys):
    with pytest.raises(PeerLost, match="no agent listens"):
        dgkit.connect(f"tcp://127.0.0.1:1?key={'ab' * 32}")


def test_what_does_not_speak_zeromq_is_a_typed_error_within_the_timeout(own_keys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(dgkit.PeerTimeout, match="no ZeroMQ peer answered"):
            dgkit.connect(f"tcp://127.0.0.1:{port}?key={'ab' * 32}", timeout=0.5)
