# SPDX-License-Identifier: Apache-2.0
"""Requests to an agent from hypothesis: any fields, then bytes changed, cut or doubled."""

from __future__ import annotations

import msgspec
import zmq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.processes import agents

import dgkit
from dgkit.schema import LatencyTask, RateTask, WatchTask
from dgkit.wire import messages as m
from dgkit.wire.address import parse

HELLO = m.Hello(version=m.VERSION, pid=17, boot="boot", machine="machine", package="0.1.0")
REPLY_MS = 30_000
UNTYPED = "the other side failed"  # how an agent reports an exception that is not one of dgkit's

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
KINDS = st.integers(0, 20)


# Any array: kind, number, fields. The number None is replaced by the one that is due.
ROWS = st.tuples(
    KINDS, st.one_of(st.none(), st.none(), values), st.lists(st.one_of(numbers, values), max_size=9)
).map(lambda row: [row[0], row[1], *row[2]])


def _valid() -> st.SearchStrategy[m.Request]:
    """Return requests that can be read, with the number 0; those that take time are short."""
    small, any_size = st.integers(1, 4), st.integers(0, 2**63 - 1)
    size = st.one_of(st.integers(0, 4096), any_size)
    name, op, path = st.text(max_size=256), st.integers(0, 1), st.integers(0, 2)
    few, access, flag = st.integers(0, 4096), st.integers(1, 3), st.booleans()
    latency = st.builds(
        LatencyTask, offset=size, size=size, op=op, samples=st.integers(1, 50), path=path
    )
    rate = st.builds(
        RateTask, size=size, op=op, window=st.integers(1, 64), seconds=st.just(0.001), path=path
    )
    watch = st.builds(
        WatchTask, offset=size, size=st.integers(1, 4096), op=op, samples=small, path=path,
        every_s=st.floats(0.01, 60),
    )  # fmt: skip
    own = {"size": few, "place": st.just("host")}
    return st.one_of(
        st.builds(m.Allocate, size=size, access=access, export=flag, name=name, place=name),
        st.builds(m.Allocate, access=access, export=flag, name=name, **own),
        st.builds(m.Import, token=st.binary(max_size=768)),
        st.builds(m.Export, region=small, access=st.integers(0, 3)),
        st.builds(m.Free, region=small, timeout=st.floats(0, 0.01)),
        st.builds(m.Move, src=small, src_offset=size, dst=small, dst_offset=size, size=size),
        st.builds(m.Digest, region=small, offset=size, size=size),
        st.builds(m.Latency, region=small, task=latency),
        st.builds(m.Rate, region=small, task=rate),
        st.builds(m.Cancel, target=any_size),
        st.builds(m.Stats),
        st.builds(m.Subscribe),
        st.builds(m.OpenRing, memory=st.binary(max_size=768), region=small,
                  locals=st.lists(small, max_size=9), depth=st.integers(0, 1 << 15), weak=flag,
                  index=st.integers(0, 2**32), trace=flag),
        st.builds(m.CloseRing, ring=small),
        st.builds(m.Stage, region=small, offset=size, data=st.binary(max_size=200)),
        st.builds(m.Fetch, region=small, offset=size, size=few),
        st.builds(m.Outstanding),
        st.builds(m.Watch, monitor=small, region=small, task=watch),
    )  # fmt: skip


DAMAGE = st.tuples(
    st.integers(0, 900), st.integers(0, 255), st.sampled_from(["set", "cut", "twice"])
)
BODIES = st.lists(
    st.one_of(st.binary(max_size=64), ROWS, st.tuples(_valid(), st.one_of(st.none(), DAMAGE))),
    min_size=5,
    max_size=5,
)


# What each client has when its own requests begin: regions 1 and 2, of the agent's memory.
OWN = [(m.Allocate(size=4096, access=3, export=True, name="", place="host"), None)] * 2


def message(drawn: object, number: int) -> bytes:
    """Return the bytes of what was drawn, with the number that is due."""
    if isinstance(drawn, bytes):
        return drawn
    if isinstance(drawn, list):
        kind, own, *fields = drawn
        return msgspec.msgpack.encode([kind, number if own is None else own, *fields])
    request, damage = drawn
    body = bytearray(m.encode(msgspec.structs.replace(request, id=number)))
    if damage is None:
        return bytes(body)
    at, byte, how = damage
    at %= len(body)
    if how == "set":
        body[at] = byte
    elif how == "cut":
        del body[at:]
    else:
        body[at:at] = body[at:]
    return bytes(body)


agent = agents.agent


def _exchange(socket: zmq.Socket[bytes], body: bytes) -> int:
    """Send a message and return the number of its reply; blocks of samples may precede it."""
    socket.send(body)
    while True:
        assert socket.poll(REPLY_MS), f"no reply to {body!r}"
        reply = m.decode_reply(socket.recv())
        if isinstance(reply, m.Failed):
            assert UNTYPED not in reply.text, f"{reply.text}: {body!r}"
        if not isinstance(reply, m.Block | m.Progress | m.Ended):
            return reply.id


def _is_bye(body: bytes) -> bool:
    """Return whether a message is a Bye; one with a wrong number is taken for one, too."""
    try:
        return type(m.decode_request(body)) is m.Bye
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def batch(running: agents.Agent, number: int, examples: int) -> None:
    """Let one client each send five requests; then a client that behaves is served."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(bodies=BODIES)
    def attack(bodies: list[object]) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        try:
            socket.connect(parse(running.address).endpoint)
            socket.send(m.encode(HELLO))
            assert socket.poll(REPLY_MS), "no Welcome"
            first = m.decode_reply(socket.recv()).first_id
            for drawn in (*OWN, *bodies):
                body = message(drawn, first)
                first = max(first, _exchange(socket, body) + 1)
                if first >= 2**63 or _is_bye(body):  # what follows Bye is dropped
                    break
        finally:
            socket.close()
            context.term()

    attack()
    with dgkit.connect(running.address) as session, session.empty(64) as region:
        session.write(region, b"fine")
        assert session.read(region, 4) == b"fine"
