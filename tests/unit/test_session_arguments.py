# SPDX-License-Identifier: Apache-2.0
"""A wrong argument is refused here, by name, and the session goes on."""

import hashlib
import os
import resource
import signal

import pytest
from support.processes.waiting import gone, until

import dgkit
from dgkit.dma import providers
from dgkit.dma.gpu_queue import ring_depth
from dgkit.errors import AccessDenied, BoundsError, ClosedError, LimitReached, OutOfMemory, PeerLost
from dgkit.types import PROVIDERS
from dgkit.wire.error_codec import to_exception
from dgkit.wire.messages import Failed

CALLS = {
    "write": lambda s, r: s.write(r, b"x"),
    "read": lambda s, r: s.read(r, 1),
    "start_write": lambda s, r: s.start_write(r, b"x"),
    "start_read": lambda s, r: s.start_read(r, 1),
    "copy from": lambda s, r: s.copy(r, s.mine),
    "copy to": lambda s, r: s.copy(s.mine, r),
    "digest": lambda s, r: s.digest(r),
    "latency": lambda s, r: s.latency(r, count=1),
    "bandwidth": lambda s, r: s.bandwidth(r, 64, seconds=0.01),
    "monitor": lambda s, r: s.monitor(r),
}


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as made:
        made.mine = made.empty(64, name="mine")
        yield made


@pytest.fixture(scope="module")
def other():
    with dgkit.connect() as made:
        yield made


def queue_write(_session, _region):
    with dgkit.Device("soft") as device, device.queue() as queue:
        region = device.register(bytearray(64), access="rw")
        queue.write(region, region, local_offset=True)


BOOLS = {  # True is no number of anything
    "shape": lambda s, r: s.empty(True),
    "shape of a tuple": lambda s, r: s.empty((2, True)),
    "size of read": lambda s, r: s.read(r, True),
    "offset of read": lambda s, r: s.read(r, 1, False),
    "offset of write": lambda s, r: s.write(r, b"x", True),
    "offset of start_write": lambda s, r: s.start_write(r, b"x", True),
    "size of start_read": lambda s, r: s.start_read(r, True),
    "size of digest": lambda s, r: s.digest(r, True),
    "count of latency": lambda s, r: s.latency(r, count=True),
    "size of latency": lambda s, r: s.latency(r, True),
    "size of bandwidth": lambda s, r: s.bandwidth(r, True, seconds=0.01),
    "window of bandwidth": lambda s, r: s.bandwidth(r, 1, window=True, seconds=0.01),
    "seconds of bandwidth": lambda s, r: s.bandwidth(r, 1, seconds=True),
    "shape of dgkit.empty": lambda s, r: dgkit.empty(True),
    "max_memory": lambda s, r: dgkit.connect(max_memory=True).close(),
    "timeout of connect": lambda s, r: dgkit.connect(timeout=True).close(),
    "depth": lambda s, r: ring_depth(True),
    "local_offset of Queue.write": queue_write,
    "every of FaultRule": lambda s, r: dgkit.FaultRule("error", every=True),
    "seed of FaultRule": lambda s, r: dgkit.FaultRule("error", seed=True),
    "size of doctor": lambda s, r: dgkit.doctor(size=True),
}


@pytest.mark.parametrize("call", BOOLS)
def test_a_bool_is_no_size_offset_or_count(session, call):
    with pytest.raises(TypeError, match=rf"^{call.split()[0]} is .*(True|False)"):
        BOOLS[call](session, session.mine)


@pytest.mark.parametrize(
    ("access", "has", "verb"), [("r", "read", "write"), ("w", "write", "read")]
)
@pytest.mark.parametrize(
    "call", ["write", "read", "start_write", "start_read", "copy to", "digest"]
)
def test_a_transfer_that_the_access_forbids_names_the_region(session, access, has, verb, call):
    allowed = (verb == "write") == (call in {"read", "start_read", "digest"})
    with session.register(bytearray(64), access=access, name="of the user") as region:
        if allowed:
            CALLS[call](session, region)
            return
        says = f"region 'of the user' is {has}-only: a {verb} is not allowed"
        with pytest.raises(AccessDenied, match=says):
            CALLS[call](session, region)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("on", ["host", "dpu"])
def test_a_region_of_another_session_is_refused_and_nothing_is_written(session, other, call, on):
    with other.empty(64, name="theirs", on=on) as theirs:
        with pytest.raises(ValueError, match="region 'theirs' is of another session"):
            CALLS[call](session, theirs)
        assert other.read(theirs, 64) == bytes(64)
    assert session.read(session.mine, 64) == bytes(64)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wrong", [bytearray(64), None, 5, "mine"], ids=repr)
def test_what_is_no_region_is_a_type_error_that_names_what_is_needed(session, call, wrong):
    with pytest.raises(TypeError, match=rf"{type(wrong).__name__}.*SessionRegion.*register"):
        CALLS[call](session, wrong)


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_region_is_refused(session, call):
    region = session.empty(64, name="over")
    region.close()
    with pytest.raises(ClosedError, match="'over' is closed"):
        CALLS[call](session, region)


WRONG = [
    (lambda s: s.read(s.mine, 1.5), TypeError, "size is 1.5; it must be a whole number"),
    (lambda s: s.read(s.mine, "5x"), ValueError, "size: '5x' is not a size: use bytes, or 64K"),
    (lambda s: s.read(s.mine, None), TypeError, "size is None"),
    (lambda s: s.read(s.mine, 1, offset=None), TypeError, "offset is None"),
    (lambda s: s.write(s.mine, b"x", offset=1.5), TypeError, "offset is 1.5"),
    (lambda s: s.write(s.mine, "hello"), TypeError, r"data has type str.*buffer.*encode"),
    (lambda s: s.write(s.mine, 5), TypeError, "data has type int; it must be bytes"),
    (lambda s: s.start_write(s.mine, None), TypeError, "data has type NoneType"),
    (lambda s: s.digest(s.mine, offset="1K"), BoundsError, "at offset 1,024"),
    (
        lambda s: s.write(s.mine, b"hello", offset=60),
        BoundsError,
        "5 bytes at offset 60 leave region 'mine', which has 64",
    ),
    (lambda s: s.write(s.mine, b""), ValueError, "size is 0"),
    (lambda s: s.latency(s.mine, 1.5), TypeError, "size is 1.5"),
    (lambda s: s.latency(s.mine, count=1.5), TypeError, "count is 1.5; it must be a whole"),
    (lambda s: s.latency(s.mine, count="10"), TypeError, "count is '10'"),
    (lambda s: s.latency(s.mine, count=0), ValueError, "count is 0; it must be 1 to 1000000"),
    (lambda s: s.latency(s.mine, op="wrote"), ValueError, "op is 'wrote'"),
    (lambda s: s.latency(s.mine, op=[]), ValueError, r"op is \[\]"),
    (lambda s: s.latency(s.mine, path=1), ValueError, "path is 1"),
    (lambda s: s.latency(s.mine, progress=5), TypeError, "progress is 5; it must be a function"),
    (lambda s: s.bandwidth(s.mine, 64, window=1.5), TypeError, "window is 1.5"),
    (lambda s: s.bandwidth(s.mine, 64, window=65537), ValueError, "window is 65537.*1 to 65536"),
    (lambda s: s.bandwidth(s.mine, 64, seconds="1"), TypeError, "seconds is '1'"),
    (lambda s: s.bandwidth(s.mine, 64, seconds=None), TypeError, "seconds is None"),
    (lambda s: s.bandwidth(s.mine, 64, seconds=0), ValueError, "seconds is 0.*more than 0.*3600"),
    (lambda s: s.bandwidth(s.mine, 64, seconds=float("nan")), ValueError, "seconds is nan"),
    (lambda s: s.start_read(s.mine, 1).wait("1"), TypeError, "timeout is '1'"),
    (lambda s: s.start_read(s.mine, 1).wait(-1), ValueError, "timeout is -1; .* 0 or more"),
    (lambda s: s.mine.close("1"), TypeError, "timeout is '1'"),
    (lambda s: s.mine.close(-1), ValueError, "timeout is -1"),
    (lambda s: s.mine.close(3601), ValueError, "timeout is 3601.*3600"),
    (lambda s: s.empty(2**63, on="dpu"), ValueError, r"9223372036854775808.*2\^63 - 1"),
    (lambda s: s.empty(2**62, on="dpu"), OutOfMemory, "limit"),
    (lambda s: s.empty(1.5, on="dpu"), TypeError, "shape is 1.5"),
    (lambda s: s.empty(0, on="dpu"), ValueError, "shape"),
    (lambda s: s.empty(5, "O", on="dpu"), TypeError, "object"),
    (lambda s: s.empty(5, name=5), TypeError, "name is 5; it must be text"),
    (lambda s: s.empty(5, name=5, on="dpu"), TypeError, "name is 5"),
    (lambda s: s.empty(5, on=1), ValueError, "on is 1"),
    (lambda s: s.register(bytearray(5), name=b"x"), TypeError, "name is b'x'"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG, ids=[row[2] for row in WRONG])
def test_a_wrong_argument_is_named_and_the_session_goes_on(session, call, error, text):
    with pytest.raises(error, match=text) as caught:
        call(session)
    assert "Errno 0" not in str(caught.value)
    session.write(session.mine, bytes(64))
    assert session.read(session.mine, 64) == bytes(64)


def test_numpy_integers_are_whole_numbers(session):
    np = pytest.importorskip("numpy")
    two = np.uint16(2)
    session.write(session.mine, b"ab", offset=two)
    assert session.read(session.mine, two, offset=np.int64(2)) == b"ab"
    session.write(session.mine, bytes(64))
    assert session.latency(session.mine, two, count=np.int32(20)).size == 2
    assert session.bandwidth(session.mine, two, window=two, seconds=np.float64(0.01)).failed == 0
    with session.empty(two, on="dpu") as region:
        assert region.size == 2
        region.close(np.float32(1))


def test_sizes_and_offsets_may_be_texts(session):
    with session.empty("64K", name="by text") as region:
        session.write(region, b"ab", offset="0x100")
        assert session.read(region, "1K", offset="256") == b"ab" + bytes(1022)
        assert session.start_read(region, "2", "0x100").data == b"ab"
        assert session.digest(region, "2 B", "256") == hashlib.sha256(b"ab").hexdigest()
        assert session.latency(region, "4K", count=2).size == 4096
        assert session.bandwidth(region, "8K", seconds=0.01).size == 8192


def test_bandwidth_of_a_small_region_is_that_of_all_its_bytes(session):
    assert session.bandwidth(session.mine, seconds=0.01).size == session.mine.size


def test_less_than_a_nanosecond_is_measured_as_one(session):
    assert session.bandwidth(session.mine, 64, seconds=9e-10).elapsed_ns >= 1


def test_data_of_any_format_is_written_as_its_bytes(session):
    np = pytest.importorskip("numpy")
    for dtype in (">u4", [("a", "u1"), ("b", "<f4")], "S5", "?"):
        data = np.zeros(3, dtype)
        assert session.write(session.mine, data).size == data.nbytes
    with pytest.raises(TypeError, match="Python objects"):
        session.write(session.mine, np.array([None]))


CONNECTIONS = [
    ({"timeout": "5"}, TypeError, "timeout is '5'"),
    ({"timeout": 0}, ValueError, "timeout is 0.*more than 0"),
    ({"max_memory": -1}, ValueError, "max_memory is -1"),
    ({"max_memory": 1.5}, TypeError, "max_memory is 1.5"),
    ({"max_memory": 2**64}, ValueError, "max_memory is 18446744073709551616"),
    ({"rules": [1]}, TypeError, "rules.* 1.*FaultRule"),
    ({"rules": 1}, TypeError, "rules is 1.*FaultRule"),
    ({"provider": 5}, TypeError, "provider is 5; it must be text"),
    ({"keys": 5}, TypeError, "keys is 5; it must be text"),
    ({"address": 5}, TypeError, "address must be a str"),
]


@pytest.mark.parametrize(("options", "error", "text"), CONNECTIONS, ids=[r[2] for r in CONNECTIONS])
def test_connect_names_the_argument_that_is_wrong(options, error, text):
    with pytest.raises(error, match=text):
        dgkit.connect(**options)


def test_a_closed_session_cannot_be_entered_again():
    session = dgkit.connect()
    session.close()
    with pytest.raises(ClosedError, match="the session is closed"), session:
        pass


def test_connect_without_descriptors_says_which_limit_it_met():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    try:
        for room in (0, 8, 20):
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, before[1]))
            with pytest.raises(LimitReached, match=r"descriptors.*ulimit -n"):
                dgkit.connect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_bytes_at_the_agent_are_refused_with_a_number_that_means_something(session):
    with (
        session.empty(64, on="dpu") as region,
        pytest.raises(dgkit.Unsupported, match=r"session\.read") as caught,
    ):
        region.array  # noqa: B018
    assert "Errno 0" not in str(caught.value)
    failed = Failed(id=1, kind="NativeError", text="no number", errno=0, completion=None)
    assert str(to_exception(failed)) == "no number"


def test_a_session_says_that_it_is_lost_or_closed():
    with dgkit.connect() as session:
        assert "lost" not in repr(session)
        assert "dgkit session" in session._repr_html_()
        os.kill(session.owned_pid, signal.SIGKILL)
        until(lambda: gone(session.owned_pid), "it is gone")
        assert repr(session).endswith(", lost>")
        assert "The session is lost." in session._repr_html_()
        with pytest.raises(PeerLost):
            session.empty(64)
    assert repr(session).endswith(", closed>")
    with pytest.raises(ClosedError, match="the session is closed"):
        session.empty(64)


def test_a_transfer_says_how_far_it_is(session):
    write = session.start_write(session.mine, bytes(64))
    assert repr(write).startswith("<SessionTransfer write of 64 bytes, ")
    report = write.wait()
    assert repr(write) == "<SessionTransfer write of 64 bytes, done>"
    assert "OK, 64 bytes by soft" in repr(report)
    assert " µs, in 1 piece" in repr(report)


def test_a_gpu_is_chosen_for_the_provider_cuda_alone():
    with pytest.raises(ValueError, match="gpu=1 is for the provider 'cuda', not for 'soft'"):
        dgkit.connect(gpu=1)


def test_an_rdma_device_is_chosen_for_verbs_alone():
    with pytest.raises(
        ValueError, match="rdma='mlx5_0' is for the provider 'verbs', not for 'soft'"
    ):
        dgkit.connect(rdma="mlx5_0")
    with pytest.raises(TypeError, match="rdma is 5; it must be text"):
        dgkit.connect(rdma=5)


def test_a_provider_that_does_not_exist_is_refused_before_a_process_starts(monkeypatch):
    monkeypatch.setattr("dgkit.session.spawn.SoftwareDpu", None)
    with pytest.raises(
        dgkit.DeviceUnavailable, match=r"no provider is called 'sof'; .* soft, cuda"
    ):
        dgkit.connect(provider="sof")
    assert set(PROVIDERS) == {each.name for each in providers()}


@pytest.mark.parametrize("make", ["empty", "register"])
def test_a_name_longer_than_its_limit_is_refused_and_the_limit_named(session, make):
    what = 64 if make == "empty" else bytearray(64)
    for text in ("a\x1b[2J", "a\nb", "\x9b1m", "\ud800"):
        with pytest.raises(ValueError, match="without control characters and lone surrogates"):
            session.empty(64, name=text)
    with pytest.raises(ValueError, match="129 characters; it may have at most 128"):
        getattr(session, make)(what, name="n" * 129)
    with getattr(session, make)(what, name="\N{SNOWMAN}" * 128) as region:
        assert len(region.name) == 128
