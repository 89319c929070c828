# SPDX-License-Identifier: Apache-2.0
"""Latency of transfers that a kernel of the host starts: once, and continuously."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dgkit
from dgkit.session.kernel_latency import KernelMonitor, latency


@pytest.fixture
def session() -> Iterator[dgkit.Session]:
    with dgkit.connect() as session:
        yield session


def blocks(monitor: KernelMonitor, count: int) -> list[Any]:
    found: list[Any] = []
    limit = time.monotonic() + 60
    while len(found) < count:
        found += monitor.read()
        assert time.monotonic() < limit
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("op", ["write", "read"])
def test_each_sample_is_a_transfer_and_the_region_keeps_its_bytes(
    session: dgkit.Session, op: str
) -> None:
    region = session.empty(4096)
    region.array[:] = 7
    done: list[tuple[int, int]] = []
    report = latency(
        session, region, 64, op=op, count=2500, progress=lambda n, total: done.append((n, total))
    )
    assert (report.op, report.size, report.percentiles.n) == (op, 64, 2500)
    counts = [n for n, _ in done]  # one, or more on a busy machine, whose kernels take fewer each
    assert counts == sorted({*counts})
    assert 0 < counts[0] <= counts[-1] < 2500
    assert {total for _, total in done} == {2500}
    assert (report.path, report.proxy) == ("GPU-initiated", "DPU process")
    assert report.label == "software DPU, emulated GPU"
    assert len(report.floor_ns) == 2
    assert (region.array == 7).all()
    assert session.regions == (region,)


def test_what_cannot_be_measured_is_refused(session: dgkit.Session) -> None:
    region = session.empty(64)
    for wrong, error, text in (
        ({"op": "put"}, ValueError, "op is 'put'; it must be 'read' or 'write'"),
        ({"count": 1_000_001}, ValueError, "count is 1000001; the limit is 1,000,000"),
        ({"size": 65}, dgkit.BoundsError, "65 bytes at offset 0 leave region"),
    ):
        with pytest.raises(error, match=text):
            latency(session, region, **{"op": "write", **wrong})
    with pytest.raises(ValueError, match="is the DPU's: kernels put from the host's memory"):
        latency(session, session.empty(64, on="dpu"), op="read")
    assert len(session.regions) == 2


def test_a_monitor_takes_numbered_blocks_until_it_is_closed(session: dgkit.Session) -> None:
    region = session.empty(64)
    monitor = KernelMonitor(session, region, size=8, op="write", count=20, every_s=0.01)
    found = blocks(monitor, 3)
    assert [block.number for block in found] == [0, 1, 2]
    for block in found:
        assert len(np.frombuffer(block.samples, np.uint64)) == 20
        assert (block.op, block.size, block.path) == ("write", 8, "GPU-initiated")
    monitor.close()
    monitor.close()
    assert session.regions == (region,)
    with pytest.raises(dgkit.ClosedError, match="the monitor is closed"):
        monitor.read()


def test_a_monitor_says_why_it_ended(session: dgkit.Session) -> None:
    region = session.empty(64)
    monitor = KernelMonitor(session, region, size=8, op="read", count=20, every_s=0.01)
    blocks(monitor, 1)
    region.close()
    with pytest.raises(dgkit.ClosedError, match="was closed while it was monitored"):
        blocks(monitor, 99)
    monitor.close()
    second = session.empty(64)
    monitor = KernelMonitor(session, second, size=8, op="read", count=20, every_s=0.01)
    blocks(monitor, 1)
    assert session.owned_pid is not None
    os.kill(session.owned_pid, signal.SIGKILL)
    with pytest.raises(dgkit.errors.PeerLost, match="the DPU's process has ended"):
        blocks(monitor, 9999)
    monitor.close()


def test_a_monitor_of_a_closed_session_ends() -> None:
    with dgkit.connect() as session:
        region = session.empty(64)
        monitor = KernelMonitor(session, region, size=8, op="write", count=20, every_s=0.01)
        blocks(monitor, 1)
    with pytest.raises(dgkit.ClosedError, match="the session is closed"):
        monitor.read()
    monitor.close()
