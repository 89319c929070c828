# SPDX-License-Identifier: Apache-2.0
"""What bad luck gets in a session over GPU memory: a typed error, nothing hung, nothing leaked."""

import os

import cupy
import pytest
from support.processes.agents import agent
from support.processes.children import child
from support.processes.waiting import steady, until

import dgkit
from dgkit.errors import DeviceUnavailable

MIB = 1 << 20

# A host with GPU memory, whose DPU is the agent argv[1]; it copies until it is killed.
COPYING = """
import sys, dgkit
session = dgkit.connect(sys.argv[1])
one, two = (session.empty(16 << 20, on="gpu") for _ in range(2))
session.write(one, b"x")
print("copying", flush=True)
while True:
    session.copy(one, two)
"""


@pytest.fixture(scope="module")
def dpu():
    """An agent that several clients use."""
    with agent(provider="cuda") as running:
        yield running


@pytest.fixture(scope="module")
def lender():
    with agent(role="host") as running:
        yield running


def test_a_host_that_is_killed_while_the_engine_copies_leaves_the_dpu_to_others(dpu):
    with dgkit.connect(dpu.address) as watcher:
        before = watcher.stats()
        with child(COPYING, dpu.address) as host:
            assert host.line() == "copying"
            until(lambda: watcher.stats()["regions"] > before["regions"], "it has regions")
            host.kill()
            until(lambda: watcher.stats()["clients"] == 1, "its regions are freed", 20)
        until(lambda: watcher.stats()["regions"] == before["regions"], "none is left", 20)
        with watcher.empty(64, on="gpu") as region:
            watcher.write(region, b"still here")
            assert watcher.read(region, 10) == b"still here"


def test_a_region_that_is_closed_while_the_engine_copies_ends_typed_and_in_time(dpu):
    with dgkit.connect(dpu.address) as session:
        region = session.empty(64 * MIB, on="gpu")
        write = session.start_write(region, bytes(64 * MIB))
        region.close(20.0)
        with pytest.raises(dgkit.DgkitError):
            write.wait(20.0)
        with session.empty(64, on="gpu") as other:
            session.write(other, b"goes on")


def test_a_forked_child_has_neither_the_session_nor_the_gpu(dpu):
    with dgkit.connect(dpu.address) as session:
        region = session.empty(64, on="gpu")
        session.write(region, b"parent")
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            said = []
            for call in (
                lambda: session.read(region, 1),
                lambda: dgkit.empty(64, on="gpu"),
                lambda: dgkit.empty(64, on="auto").place,
            ):
                try:
                    said.append(str(call()))
                except Exception as error:
                    said.append(type(error).__name__)
            os.write(write, " ".join(said).encode())
            os._exit(0)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(read) as pipe:
            assert pipe.read() == "ClosedError DeviceUnavailable host"
        assert status == 0
        assert session.read(region, 6) == b"parent"


def test_an_agent_without_a_gpu_refuses_by_name_and_counts_nothing(monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "cuInit=100")  # of the agent's process alone
    with agent(role="host") as host, dgkit.connect(host.address, provider="cuda") as session:
        for on in ("gpu", "cuda:0", "pinned"):
            with pytest.raises(DeviceUnavailable, match="sees no GPU"):
                session.empty(64, on=on)
        with session.empty(64, on="auto") as region:
            assert region.place == "host"
            assert "sees no GPU" in region.chosen
            session.write(region, b"moved")
        assert (session.stats()["allocated"], session.stats()["regions"]) == (0, 0)


def test_sessions_that_come_and_go_leave_no_fd_and_no_gpu_memory(dpu):
    def free():
        return cupy.cuda.runtime.memGetInfo()[0]

    def fds(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208

    def one():
        with dgkit.connect(dpu.address) as session, session.empty(4 * MIB, on="gpu") as region:
            session.write(region, b"x")
            session.register(cupy.zeros(64, "u1"), share_block=True)

    for _ in range(3):
        one()
    before = (steady(free), steady(lambda: fds(dpu.pid)), fds(os.getpid()))
    for _ in range(20):
        one()
    assert (steady(free), steady(lambda: fds(dpu.pid)), fds(os.getpid())) == before
