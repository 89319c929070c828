# SPDX-License-Identifier: Apache-2.0
"""A session's GPU queue: the host's kernels read and write memory of the DPU, which serves it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dma import pattern
from support.gpu.queue_kernels import KERNELS
from support.processes.agents import agent, python

import dgkit
from dgkit import Status
from dgkit.gpu_initiated import emulate
from dgkit.widgets.hexview.hexview import HexView
from dgkit.widgets.hexview.time_machine import WRITERS

SIZE = 8192


@pytest.fixture(scope="module")
def kernels() -> Any:
    return emulate(KERNELS)


@dataclass
class Rig:
    session: dgkit.Session
    queue: Any
    host: Any
    dpu: Any
    kernels: Any

    def arguments(self, status: Any) -> tuple[Any, ...]:
        ids = self.queue.id_of(self.dpu), self.queue.id_of(self.host)
        return (self.queue, *ids, status)

    def run(self, name: str, *args: Any, threads: int = 1, grid: int = 1, **more: Any) -> Any:
        status = np.full(max(16, threads * grid), -7, np.int32)
        self.kernels[name](grid, threads, (*self.arguments(status), *args), **more)
        return status[: threads * grid]

    @property
    def dpu_bytes(self) -> bytes:
        return self.session.read(self.dpu, SIZE)


@contextmanager
def rig(kernels: Any, **queue: Any) -> Iterator[Rig]:
    with dgkit.connect() as session:
        host, dpu = session.empty(SIZE), session.empty(SIZE, on="dpu")
        host.array[:] = np.frombuffer(pattern(SIZE), np.uint8)
        with session.gpu_queue(dpu, host, **{"depth": 64, **queue}) as q:
            yield Rig(session, q, host, dpu, kernels)


def test_a_kernel_puts_into_the_dpus_memory(kernels: Any) -> None:
    with rig(kernels) as r:
        assert not r.run("put", 64, 0, 4096).any()
        assert r.dpu_bytes == bytes(64) + pattern(SIZE)[:4096] + bytes(SIZE - 4160)
        assert r.queue.completed == 1
        assert r.queue.first_error == (Status.OK, None)


def test_a_hex_view_with_history_names_the_kernel_as_the_writer(kernels: Any) -> None:
    with rig(kernels) as r, closing(HexView(r.session, r.dpu, history="1M")) as view:
        r.session.write(r.dpu, b"host")
        assert not r.run("put", 64, 0, 4).any()
        _, (*_, hues) = view.fetch("one", 0, 80)
        writers = [WRITERS[hue] for hue in hues]
        assert writers == ["host"] * 4 + [""] * 60 + ["kernel"] * 4 + [""] * 12
        assert "kernel wrote 4 bytes at 0x40" in view.state()["history"]["text"]


def test_a_trace_has_the_clocks_of_both_processes(kernels: Any) -> None:
    with rig(kernels, trace=True) as r:
        assert r.queue.trace() == []
        assert not r.run("put_each", 8, 20, threads=8).any()  # more than the ring has places
        assert r.run("put", SIZE, 0, 8)[0] == Status.OUT_OF_BOUNDS
        stamps = r.queue.trace()
        assert [s.ticket for s in stamps] == list(range(161 - 64, 161))
        for s in stamps:  # the emulated GPU's clock is the CPU's
            times = [s.gpu_post_ns, s.seen_ns, s.posted_ns, s.completed_ns, s.gpu_complete_ns]
            assert s.op == "put"
            if s.status == Status.OK:
                assert times == sorted(times)
        assert [s.status for s in stamps[-2:]] == [Status.OK, Status.OUT_OF_BOUNDS]
        assert stamps[-1].posted_ns == 0
    with pytest.raises(dgkit.ClosedError):
        r.queue.trace()
    with rig(kernels) as r, pytest.raises(ValueError, match="opened without trace=True"):
        r.queue.trace()


def test_a_kernel_names_no_other_region(kernels: Any) -> None:
    with rig(kernels) as r:
        status = np.zeros(16, np.int32)
        q, remote, local, _ = r.arguments(status)
        put = r.kernels["put"]
        for ids, wanted in (
            ((local, local), Status.REMOTE_ACCESS_ERROR),
            ((remote, remote), Status.LOCAL_ERROR),
            ((remote, local + 1), Status.LOCAL_ERROR),
            ((remote + 1, local), Status.REMOTE_ACCESS_ERROR),
        ):
            put(1, 1, (q, *ids, status, 0, 0, 8))
            assert status[0] == wanted
        put(1, 1, (q, remote, local, status, SIZE - 4, 0, 8))
        assert status[0] == Status.OUT_OF_BOUNDS
        assert r.run("signal", 0, 1)[0] == Status.OK
        status[:] = 0
        r.kernels["signal"](1, 1, (q, remote + 1, local, status, 0, 1))
        assert status[0] == Status.REMOTE_ACCESS_ERROR
        assert r.dpu_bytes == (1).to_bytes(8, "little") + bytes(SIZE - 8)
        assert r.queue.first_error[0] == Status.REMOTE_ACCESS_ERROR


def test_a_closed_local_region_fails_and_the_close_of_the_dpus_region_ends_the_queue(
    kernels: Any,
) -> None:
    with rig(kernels) as r:
        args = r.arguments(status := np.zeros(16, np.int32))
        r.host.close()
        r.kernels["put"](1, 1, (*args, 0, 0, 8))
        assert status[0] == Status.LOCAL_ERROR
        assert not r.queue.lost
        r.dpu.close()
        assert r.queue.lost
        r.kernels["put"](1, 1, (*args, 0, 0, 8))
        assert status[0] == Status.CLOSED


def wait_for(reached: Any) -> None:
    limit = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_the_dpus_death_ends_the_waits_of_a_running_kernel(kernels: Any) -> None:
    with rig(kernels, timeout=60) as r:
        status = np.full(64, -7, np.int32)
        launch = r.kernels["forever"].start(1, 64, r.arguments(status))
        wait_for(lambda: r.queue.completed > 1000)
        os.kill(r.session.owned_pid, signal.SIGKILL)
        begin = time.monotonic()
        launch.wait()
        assert time.monotonic() - begin < 5
        assert set(status) == {Status.CLOSED}
        assert r.queue.lost


def test_closing_the_dpus_region_ends_the_waits_of_a_running_kernel(kernels: Any) -> None:
    with rig(kernels, timeout=60) as r:
        status = np.full(64, -7, np.int32)
        launch = r.kernels["forever"].start(1, 64, r.arguments(status))
        wait_for(lambda: r.queue.completed > 1000)
        r.dpu.close()
        launch.wait()
        assert set(status) <= {Status.CLOSED, Status.FLUSHED}
        assert r.queue.lost


OWNER = """
import os, sys, time
import numpy as np
from support.gpu.queue_kernels import KERNELS
import dgkit
from dgkit.gpu_initiated import emulate
from dgkit.widgets.hexview.hexview import HexView
from dgkit.widgets.hexview.time_machine import WRITERS
session = dgkit.connect(sys.argv[1])
host, dpu = session.empty(8192), session.empty(8192, on="dpu")
queue = session.gpu_queue(dpu, host, timeout=60)
ids = queue.id_of(dpu), queue.id_of(host)
launch = emulate(KERNELS)["forever"].start(1, 64, (queue, *ids, np.zeros(64, np.int32)))
while queue.completed < 1000:
    time.sleep(0.005)
print(launch.pid, flush=True)
time.sleep(60)
"""


def test_the_owners_death_ends_its_ring_at_the_agent(kernels: Any) -> None:
    with agent() as served, dgkit.connect(served.address) as other:
        command = python(OWNER, served.address)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None
            kernel = int(owner.stdout.readline())
            owner.kill()
        wait_for(lambda: not running(kernel))  # its waits ended: the ring is retired
        wait_for(lambda: other.stats()["user_regions"] == 0)
        host, dpu = other.empty(64), other.empty(64, on="dpu")
        with other.gpu_queue(dpu, host) as q:  # the agent serves others
            status = np.full(1, -7, np.int32)
            ids = q.id_of(dpu), q.id_of(host)
            kernels["put"](1, 1, (q, *ids, status, 0, 0, 64))
            assert status[0] == Status.OK


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_cannot_be_served_is_refused_with_the_way_out(monkeypatch: Any) -> None:
    with dgkit.connect() as session, dgkit.connect() as another:
        host, dpu = session.empty(64), session.empty(64, on="dpu")
        for wrong, text in (
            ((host, host), "kernels put into a region with on='dpu'"),
            ((dpu, dpu), "kernels put from the host's memory"),
            ((dpu, []), "0 local regions were given"),
            ((dpu, [host] * 9), "9 local regions were given; a GPU queue has 1 to 8"),
            ((dpu, another.empty(64)), "another session"),
        ):
            with pytest.raises(ValueError, match=text):
                session.gpu_queue(*wrong)
        closed = [session.empty(64), session.empty(64, on="dpu")]
        for each in closed:
            each.close()
        for pair in ((dpu, closed[0]), (closed[1], host)):
            with pytest.raises(dgkit.ClosedError, match=r"region .* is closed"):
                session.gpu_queue(*pair)
        with pytest.raises(ValueError, match="the limit of a GPU queue is 16384"):
            session.gpu_queue(dpu, host, depth=1 << 15)
        queues = [session.gpu_queue(dpu, host) for _ in range(8)]
        with pytest.raises(dgkit.errors.LimitReached, match="8 GPU queues"):
            session.gpu_queue(dpu, host)
        queues[0].close()
        session.gpu_queue(dpu, host).close()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("dgkit.session.session_gpu_queue.boot_id", lambda: "another")
            with pytest.raises(dgkit.Unsupported, match=r"on another machine .*session.write"):
                session.gpu_queue(dpu, host)
    assert all(queue.closed for queue in queues)
    with (
        dgkit.connect(provider="fault") as session,
        pytest.raises(dgkit.Unsupported, match="by the provider fault: open the GPU queue of"),
    ):
        session.gpu_queue(session.empty(64, on="dpu"), session.empty(64))
