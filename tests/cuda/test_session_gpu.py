# SPDX-License-Identifier: Apache-2.0
"""A session over GPU memory: what it does with the host's it does with a GPU's, and it says so."""

import hashlib
import os
import signal
import threading
from itertools import pairwise
from pathlib import Path

import cupy
import numpy as np
import pytest
from support.processes.agents import agent
from support.processes.waiting import children, gone, until

import dgkit
from dgkit.errors import (
    ClosedError,
    DeviceUnavailable,
    ExportError,
    OutOfMemory,
    PeerLost,
    TransferError,
)
from dgkit.memory import gpus
from dgkit.types import Op, Status

MIB = 1 << 20
ENGINE = f"GPU 0, {gpus()[0].name}"
DRIVER = "the driver's own copy, bare C loop"


@pytest.fixture(scope="module")
def session():
    with dgkit.connect(provider="cuda") as made:
        yield made


@pytest.fixture
def region(session):
    with session.empty(MIB, on="gpu", name="r") as made:
        yield made


@pytest.fixture(scope="module")
def lender():
    """A host's agent: it has the memory, the tests' process is the DPU."""
    with agent(role="host") as running:
        yield running


def free_bytes():
    return cupy.cuda.runtime.memGetInfo()[0]


@pytest.mark.any_gpu
def test_both_sides_say_that_the_dpu_is_software_and_whose_engine_copies(session):
    info = session.info
    assert info["dpu"]["software"]
    assert (info["dpu"]["provider"], info["dpu"]["engine"]) == ("cuda", ENGINE)
    assert (info["host"]["provider"], info["host"]["engine"]) == ("soft", "")
    for shown in (repr(session), session._repr_html_()):
        assert "software DPU, GPU copy engine" in shown
        assert "hardware" not in shown
    assert ENGINE in session._repr_html_()


@pytest.mark.any_gpu
def test_what_is_written_is_in_the_array_and_nowhere_else(session, region):
    assert isinstance(region.array, cupy.ndarray)
    report = session.write(region, b"hello", offset=7)
    assert region.array[6:13].get().tobytes() == b"\0hello\0"
    assert (report.status, report.size, report.op) == (Status.OK, 5, Op.WRITE)
    assert report.provider == "cuda"


def test_what_the_array_holds_is_read(session, region):
    region.array[100:105] = list(b"world")
    assert session.read(region, 5, offset=100) == b"world"


@pytest.mark.any_gpu
@pytest.mark.parametrize("size", [1, 64, 65536, 65537, 2 * MIB, 9 * MIB + 5])
def test_any_size_comes_back_as_it_went(session, size):
    data = os.urandom(size)
    with session.empty(size + 3, on="gpu") as region:
        assert session.write(region, data, offset=3).size == size
        assert session.read(region, size, offset=3) == data
        assert session.read(region, 3) == b"\0\0\0"
        assert session.digest(region, size, offset=3) == hashlib.sha256(data).hexdigest()
        started = session.start_write(region, data[::-1])
        assert started.wait().size == size
        assert session.start_read(region, size).data == data[::-1]


@pytest.mark.any_gpu
def test_the_dpu_copies_between_memory_of_every_place(session):
    data = os.urandom(3 * MIB + 1)
    with (
        session.empty(len(data)) as host,
        session.empty(len(data), on="gpu") as first,
        session.empty(len(data), on="cuda:0") as second,
        session.empty(len(data), on="pinned") as pinned,
        session.empty(len(data), on="dpu") as dpu,
        session.empty(len(data)) as last,
    ):
        session.write(host, data)
        path = (host, first, second, pinned, first, dpu, last)
        for src, dst in pairwise(path):
            assert session.copy(src, dst).size == len(data)
        assert last.array.tobytes() == data
        assert [region.place for region in path[1:4]] == ["cuda:0", "cuda:0", "pinned"]


def test_a_region_says_where_it_is(session, region):
    assert (region.on, region.place) == ("host", "cuda:0")
    assert "'r' on host, cuda:0, 1,048,576 bytes" in repr(region)
    shown = region._repr_html_()
    assert "host, cuda:0" in shown
    assert "GPU copy engine" in shown


def test_auto_takes_the_gpu_and_says_so(session):
    with session.empty((4, 4), "f4", on="auto") as region:
        assert region.place == "cuda:0"
        assert region.array.shape == (4, 4)
        assert "GPU memory" in region.chosen
        assert region.chosen in repr(region)


def test_an_array_of_a_pool_is_registered_with_its_block_or_not_at_all(session):
    mine = cupy.asarray(list(b"0123456789"), "u1")
    with pytest.raises(ExportError, match=r"10 bytes.*block.*share_block=True"):
        session.register(mine)
    with session.register(mine, share_block=True, name="mine") as region:
        assert (region.size, region.place) == (10, "cuda:0")
        session.write(region, b"ab", offset=2)
        assert mine.get().tobytes() == b"01ab456789"
        assert session.read(region, 10) == b"01ab456789"
        assert region.array.get().tobytes() == b"01ab456789"


def test_memory_that_was_wrapped_without_its_block_is_not_shared_after_the_fact(session):
    wrapped = dgkit.wrap(cupy.zeros(10, "u1"))
    with pytest.raises(ValueError, match=r"dgkit.wrap\(obj, share_block=True\)"):
        session.register(wrapped, share_block=True)
    with session.register(dgkit.wrap(cupy.ones(10, "u1"), share_block=True)) as region:
        assert session.read(region, 10) == b"\1" * 10


def test_memory_that_dgkit_made_is_registered_in_place(session):
    with dgkit.empty(64, on="gpu") as memory, session.register(memory) as region:
        session.write(region, b"in place")
        assert memory.array[:8].get().tobytes() == b"in place"


def test_a_read_only_region_of_a_gpu_is_not_written(session):
    with dgkit.empty(64, on="gpu") as memory, session.register(memory, access="r") as region:
        memory.array[:] = 7
        assert session.read(region, 2) == b"\7\7"
        with pytest.raises(dgkit.AccessDenied):
            session.write(region, b"x")
        assert session.read(region, 2) == b"\7\7"


CALLS = {
    "read": lambda s, r: s.read(r, 5),
    "start_read": lambda s, r: s.start_read(r, 5).data,
    "digest": lambda s, r: s.digest(r, 5),
    "copy": lambda s, r: (s.copy(r, s.other), s.read(s.other, 5))[1],
}


@pytest.mark.parametrize("call", CALLS)
def test_what_a_kernel_still_writes_is_there_before_the_dpu_reads(session, region, call, fake_cuda):
    go = threading.Event()

    def open_when_waited_for():
        before = fake_cuda.calls("cuStreamSynchronize")
        ready.set()
        until(lambda: fake_cuda.calls("cuStreamSynchronize") > before, "the session waits", 20)
        go.set()

    def kernel(_):
        go.wait(20)
        region.array[:5] = list(b"ready")

    ready = threading.Event()
    watcher = threading.Thread(target=open_when_waited_for)
    with session.empty(region.size) as session.other, cupy.cuda.Stream() as stream:
        region.array[:5] = 0
        stream.launch_host_func(kernel, None)
        watcher.start()
        ready.wait(20)
        found = CALLS[call](session, region)
        watcher.join()
    del session.other
    assert found == (hashlib.sha256(b"ready").hexdigest() if call == "digest" else b"ready")


def test_a_write_comes_after_what_a_kernel_still_writes(session, region, fake_cuda):
    go = threading.Event()
    with cupy.cuda.Stream() as stream:
        waits = fake_cuda.calls("cuStreamSynchronize")
        stream.launch_host_func(lambda _: (go.wait(20), region.array[:5].fill(1)), None)
        writing = []

        def write():
            with stream:
                writing.append(session.write(region, b"after"))

        thread = threading.Thread(target=write)
        thread.start()
        until(lambda: fake_cuda.calls("cuStreamSynchronize") > waits, "the write waits", 20)
        assert not writing
        go.set()
        thread.join()
    assert region.array[:5].get().tobytes() == b"after"


def test_transfers_of_host_memory_wait_for_no_stream(session, fake_cuda):
    with session.empty(64) as region:
        before = fake_cuda.calls("cuStreamSynchronize")
        session.write(region, b"x")
        session.read(region, 1)
        session.digest(region)
        assert fake_cuda.calls("cuStreamSynchronize") == before
        assert region.producer is None


@pytest.mark.any_gpu
def test_reports_name_the_gpu_its_label_and_what_the_floor_is(session, region):
    latency = session.latency(region, size=64, op="write", count=300)
    rate = session.bandwidth(region, size=65536, op="read", seconds=0.1, window=8)
    assert latency.percentiles.n == 300
    assert rate.bytes == rate.ops * 65536 > 0
    for report in (latency, rate):
        assert (report.provider, report.label) == ("cuda", "software DPU, GPU copy engine")
        assert report.floor_kind == DRIVER
        assert len(report._floors()) == 2
        assert report.machine.engine.startswith(ENGINE)
        text = str(report)
        for words in (DRIVER, "copy engine", "r on host, cuda:0;", ENGINE):
            assert words in text
        assert "hardware" not in text + report._repr_html_()


@pytest.mark.parametrize("on", ["host", "pinned"])
def test_over_host_memory_the_cpu_copies_and_the_report_says_so(session, on):
    with session.empty(4096, on=on) as region:
        reports = [session.latency(region, count=50), session.bandwidth(region, 64, seconds=0.05)]
    for report in reports:
        assert (report.provider, report.label) == ("cuda", "software DPU")
        assert report.floor_kind == "memcpy"
        assert len(report._floors()) == 2
        assert "copied by the CPU" in str(report)
        assert "copy engine" not in str(report) + report._repr_html_()


def test_on_the_dpu_s_side_the_host_s_agent_lends_memory_of_its_gpu(lender):
    data = os.urandom(3 * MIB + 1)
    with dgkit.connect(lender.address, provider="cuda") as session:
        assert session.info["dpu"]["pid"] == os.getpid()
        assert session.info["dpu"]["software"]
        with session.empty(len(data), on="gpu") as there, session.empty(64, on="cuda:0") as more:
            assert (there.on, there.place, more.place) == ("host", "cuda:0", "cuda:0")
            assert "on host, cuda:0" in repr(there)
            session.write(there, data)
            assert session.read(there, len(data)) == data
            assert session.digest(there) == hashlib.sha256(data).hexdigest()
            assert session.latency(there, count=50).provider == "cuda"
            assert session.bandwidth(there, 4096, seconds=0.05).failed == 0
            assert session.stats()["allocated"] == 0


def test_the_agent_counts_what_it_lends_of_the_host_s_memory_alone(lender):
    with dgkit.connect(lender.address, provider="cuda") as session:
        for on, counted in (("gpu", 0), ("auto", 0), ("pinned", 4096), ("host", 4096)):
            with session.empty(4096, on=on) as region:
                assert session.stats()["allocated"] == counted
                assert region.place == ("cuda:0" if on in ("gpu", "auto") else on)
                assert bool(region.chosen) is (on == "auto")
            assert session.stats()["allocated"] == 0
        with pytest.raises(OutOfMemory, match="bytes requested, "):
            session.empty(1 << 40, on="gpu")
        with pytest.raises(DeviceUnavailable, match="there is no cuda:7"):
            session.empty(64, on="cuda:7")
        assert session.stats()["regions"] == 0


def test_memory_on_a_gpu_is_given_back_when_a_session_ends(session):
    with session.empty(MIB, on="gpu"):
        before = free_bytes()
    given = free_bytes()
    assert given >= before
    for _ in range(20):
        with session.empty(4 * MIB, on="gpu") as region:
            session.write(region, b"x")
        session.register(cupy.zeros(100, "u1"), share_block=True).close()
    assert free_bytes() >= given - 4 * MIB  # what CuPy's pool keeps
    with dgkit.connect(provider="cuda") as other:
        kept = other.empty(8 * MIB, on="gpu")
        other.write(kept, b"x")
        assert free_bytes() <= given - 8 * MIB
    until(lambda: free_bytes() >= given - 4 * MIB, "the GPU has its memory back")
    with pytest.raises(ClosedError):
        kept.array  # noqa: B018


@pytest.mark.any_gpu
def test_more_than_the_gpu_has_is_out_of_memory_and_nothing_is_taken(session):
    before = free_bytes()
    with pytest.raises(OutOfMemory, match=r"bytes requested, [\d,]+ free"):
        session.empty(1 << 40, on="gpu")
    assert free_bytes() == before
    assert session.stats()["your_regions"] <= 2  # staging memory


def test_a_dpu_that_is_killed_is_peer_lost_and_the_array_lives():
    with dgkit.connect(provider="cuda") as session:
        region = session.empty(MIB, on="gpu")
        session.write(region, b"before")
        os.kill(session.owned_pid, signal.SIGKILL)
        until(lambda: gone(session.owned_pid), "it is gone")
        with pytest.raises(PeerLost):
            session.write(region, b"x")
        assert region.array[:6].get().tobytes() == b"before"


def test_a_gpu_context_that_is_lost_at_the_dpu_fails_its_transfers_by_name(monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "lost@6")  # of the DPU's process alone
    with dgkit.connect(provider="cuda") as session, session.empty(MIB, on="gpu") as region:

        def write_often():
            for _ in range(20):
                session.write(region, b"x")

        with pytest.raises(TransferError) as caught:
            write_often()
        assert caught.value.completion.status is not Status.OK
        with pytest.raises(TransferError):
            session.write(region, b"again")
        region.array[:1] = 5  # this process's context is another
        assert region.array[:1].get().tobytes() == b"\5"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("cuInit=100", "sees no GPU|no GPU"),
        ("cuInit=803", "version"),
        ("cuInit=34", "stub"),
        ("gpus=1", "no GPU 5|there is 1|there are 1"),
    ],
)
def test_a_dpu_that_cannot_be_says_why_and_leaves_no_process(order, words, monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", order)
    before = children()
    with pytest.raises(DeviceUnavailable, match=words):
        dgkit.connect(provider="cuda", gpu=5)
    assert children() == before


def test_the_lines_of_the_readme_run(capsys):
    readme = Path(__file__).parents[2] / "dgkit/memory/README.md"
    text = readme.read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {"dgkit": dgkit})
    shown = capsys.readouterr().out
    assert str(np.ones(2, "f4").tobytes()) in shown
    assert "software DPU, GPU copy engine" in shown


def test_the_dpu_may_copy_by_another_gpu_than_the_first(monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "gpus=2")
    with dgkit.connect(provider="cuda", gpu=1) as session:
        assert session.info["dpu"]["engine"] == "GPU 1, dgkit fake GPU"
        with session.empty(64) as region:
            session.write(region, b"x")
            assert session.read(region, 1) == b"x"
