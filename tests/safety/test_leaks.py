# SPDX-License-Identifier: Apache-2.0
"""A thousand cycles end with the fds, mappings, threads and files that they began with."""

import asyncio
import gc
from pathlib import Path

import pytest
from support.processes.children import run
from support.processes.waiting import held

import dgkit
from dgkit import Device
from dgkit.runtime_folder import runtime_dir

SELF = Path("/proc/self")


def state():
    gc.collect()
    return held() | {
        "memfds": sum("memfd" in str(fd.readlink()) for fd in open_fds()),
        "files": sorted(p.name for p in runtime_dir().iterdir()),
    }


def open_fds():
    # The fd that lists the folder is gone when the list is read.
    return [fd for fd in (SELF / "fd").iterdir() if fd.is_symlink()]


def cycle():
    memory = dgkit.empty(4096)
    with (
        Device() as device,
        device.queue(8) as queue,
        device.register(memory) as target,
        device.register(bytearray(64)) as local,
        device.import_region(target.export()) as remote,
    ):
        queue.write(local, remote).wait(5)
        queue.write(local, remote)
    memory.close()


async def awaited():
    with (
        Device() as device,
        device.queue(8, "worker") as queue,
        device.register(bytearray(1 << 20)) as a,
        device.import_region(a.export()) as b,
    ):
        await queue.write(a, b)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A runtime folder that nobody else writes to."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_thousand_cycles_leave_nothing(folder):
    cycle()
    before = state()
    for _ in range(1000):
        cycle()
    assert state() == before


def test_a_hundred_awaiting_cycles_leave_nothing(folder):
    asyncio.run(awaited())
    before = state()
    for _ in range(100):
        asyncio.run(awaited())
    assert state() == before


def test_cycles_that_fail_at_each_step_leave_nothing(folder):
    def failing():
        with (
            Device() as device,
            device.queue(8) as queue,
            device.register(bytearray(64)) as a,
            device.import_region(a.export()) as b,
        ):
            for use in (
                lambda: device.queue(0),
                lambda: device.register(b"x", "w"),
                lambda: device.register(bytearray(8), size=9),
                lambda: device.import_region(b"nonsense"),
                lambda: queue.write(a, b, size=65),
                lambda: queue.prepare_write(a, b, size=65),
                lambda: a.export("rw") and Device("nothing"),
                lambda: dgkit.empty(1 << 60),
            ):
                with pytest.raises((dgkit.DgkitError, ValueError)):
                    use()

    failing()
    before = state()
    for _ in range(50):
        failing()
    assert state() == before


def test_a_process_that_imports_again_and_again_holds_no_more_than_once(folder):
    program = """
import gc, os, sys, dgkit
token = bytes.fromhex(sys.argv[1])
def state():
    gc.collect()
    maps = sum("memfd" in line for line in open("/proc/self/maps"))
    return len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/proc/self/task"))
def cycle():
    with dgkit.Device() as device, device.queue() as queue, device.register(bytearray(64)) as local:
        with device.import_region(token, timeout=5) as remote:
            queue.write(local, remote, size=64).wait(5)
cycle()
before = state()
for _ in range(200):
    cycle()
print(before == state(), before, state())
"""
    with Device() as device, device.register(dgkit.empty(4096)) as region:
        assert run(program, region.export().hex()).startswith("True")
        assert region.importers == 0
