"""Requests to an agent from hypothesis: any fields, then bytes changed, cut or doubled."""

from __future__ import annotations

import msgspec
import zmq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.processes import agents

import dgkit
from dgkit.wire import messages as m
from dgkit.wire.address import parse

HELLO = m.Hello(0, m.VERSION, 17, "boot", "machine", "0.1.0")
REPLY_MS = 30_000

numbers = st.one_of(
    st.integers(0, 9),
    st.integers(0, 1 << 20),
    st.sampled_from([2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)]),
)
values = st.one_of(
    numbers,
    st.booleans(),
    st.none(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=200),
    st.lists(numbers, max_size=3),
    st.dictionaries(st.text(max_size=3), numbers, max_size=2),
)
KINDS = st.integers(0, 16)


def rows(first: int) -> st.SearchStrategy[bytes]:
    """Return requests as arrays: kind, a rising number or any value, fields."""
    number = st.one_of(st.just(first), st.just(first), values)
    fields = st.lists(st.one_of(numbers, values), max_size=9)
    return st.tuples(KINDS, number, fields).map(
        lambda row: msgspec.msgpack.encode([row[0], row[1], *row[2]])
    )


def valid(first: int) -> st.SearchStrategy[bytes]:
    """Return requests that can be read; those that take time are kept short."""
    small, any_size = st.integers(1, 4), st.integers(0, 2**63 - 1)
    size = st.one_of(st.integers(0, 4096), any_size)
    name, op, path = st.text(max_size=256), st.integers(0, 1), st.integers(0, 2)
    number = st.just(first)
    requests = st.one_of(
        st.builds(m.Allocate, number, size, st.integers(1, 3), st.booleans(), name, name),
        st.builds(m.Allocate, number, st.integers(0, 4096), small.map(lambda n: n % 4 or 1),
                  st.booleans(), name),
        st.builds(m.Import, number, st.binary(max_size=768)),
        st.builds(m.Export, number, small, st.integers(0, 3)),
        st.builds(m.Free, number, small, st.floats(0, 0.01)),
        st.builds(m.Move, number, small, size, small, size, size),
        st.builds(m.Digest, number, small, size, size),
        st.builds(m.Latency, number, small, size, size, op, st.integers(1, 50), path),
        st.builds(m.Rate, number, small, size, op, st.integers(1, 64), st.just(0.001), path),
        st.builds(m.Cancel, number, any_size),
        st.builds(m.Stats, number),
        st.builds(m.Subscribe, number),
        st.builds(m.Watch, number, small, small, size, st.integers(1, 4096), op, small, path,
                  st.floats(0.01, 60)),
    )  # fmt: skip
    return requests.map(m.encode)


def damaged(message: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return messages with one byte changed, cut, or doubled."""

    def change(parts: tuple[bytes, int, int, int]) -> bytes:
        body, at, byte, how = parts
        changed = bytearray(body)
        at %= len(changed)
        if how == 0:
            changed[at] = byte
        elif how == 1:
            del changed[at:]
        else:
            changed[at:at] = changed[at:]
        return bytes(changed)

    parts = st.tuples(message, st.integers(0, 900), st.integers(0, 255), st.integers(0, 2))
    return parts.map(change)


agent = agents.agent


def _exchange(socket: zmq.Socket[bytes], body: bytes) -> int:
    """Send a message and return the number of its reply; blocks of samples may precede it."""
    socket.send(body)
    while True:
        assert socket.poll(REPLY_MS), f"no reply to {body!r}"
        reply = m.decode_reply(socket.recv())
        if not isinstance(reply, m.Block | m.Progress | m.Ended):
            return reply.id


def batch(running: agents.Agent, number: int, examples: int) -> None:
    """Let one client each send five requests; then a client that behaves is served."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(data=st.data())
    def attack(data: st.DataObject) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        try:
            socket.connect(parse(running.address).endpoint)
            socket.send(m.encode(HELLO))
            assert socket.poll(REPLY_MS), "no Welcome"
            first = m.decode_reply(socket.recv()).first_id
            for _ in range(5):
                good = valid(first)
                body = data.draw(
                    st.one_of(st.binary(max_size=64), rows(first), good, damaged(good))
                )
                first = max(first, _exchange(socket, body) + 1)
                if first >= 2**63:
                    break
        finally:
            socket.close()
            context.term()

    attack()
    with dgkit.connect(running.address) as session, session.empty(64) as region:
        session.write(region, b"fine")
        assert session.read(region, 4) == b"fine"
