# SPDX-License-Identifier: Apache-2.0
"""Memory in a testbed's PCI BAR. A file is the host guest's memory."""

import mmap
import os
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import dgkit
from dgkit.errors import DeviceUnavailable, OutOfMemory, Unsupported
from dgkit.memory import bar

SIZE = 4 << 20
ROOM = SIZE - 524288  # behind the table
OPEN = 1


@pytest.fixture
def path(tmp_path, monkeypatch):
    """File with an empty BAR."""
    path = tmp_path / "bar"
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.flush()
    fd = os.open(path, os.O_RDWR)
    bar.lay_out(fd, SIZE)
    os.close(fd)
    monkeypatch.setattr(bar, "_where", lambda: (str(path), 0, SIZE))
    return path


def field(path, kind, at):
    return struct.unpack(kind, path.read_bytes()[at : at + struct.calcsize(kind)])[0]


def where(memory):
    """Return the offset of memory in the BAR."""
    return memory.native_fields(0)["fd_offset"]


def put(path, kind, at, value):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(kind, value))


def test_without_a_bar_the_error_names_the_way_to_one():
    with pytest.raises(DeviceUnavailable, match="dgkit testbed up"):
        dgkit.empty(64, on="bar")


def test_a_bar_that_cannot_be_opened_is_named(monkeypatch):
    monkeypatch.setattr(bar, "_where", lambda: ("/dev/missing", 0, SIZE))
    with pytest.raises(DeviceUnavailable, match=r"/dev/missing.*needs root"):
        dgkit.empty(64, on="bar")


def whole(size):
    """Return the size in whole pages of the system."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def test_the_kernel_command_line_says_where_the_bar_is():
    words = "quiet memmap=0x4000000$0x40000000 dgkit.bar=0x4000000@0x40000000\n"
    assert bar._WHERE.search(words).groups() == ("0x4000000", "0x40000000")
    assert not bar._WHERE.search("quiet dgkit.bar=64M@1G")


def test_memory_in_the_bar_is_zero_and_its_own(path):
    with dgkit.empty((3, 1000), "u2", on="bar", name="a") as first, dgkit.empty(1, on="bar") as two:
        assert (first.place, first.size, first.fd) == ("bar", 6000, -1)
        assert not any(first.buffer)
        first.array[:] = 0x5A5A
        assert first.array.shape == (3, 1000)
        assert (where(first), where(two)) == (524288, 524288 + whole(6000))
        assert path.read_bytes()[524288 : 524288 + 6000] == b"\x5a" * 6000
        assert "PCI BAR" in first._repr_html_()
    with dgkit.empty(6000, on="bar") as again:
        assert where(again) == 524288
        assert not any(again.buffer)


def test_closed_memory_is_kept_by_its_arrays(path):
    memory = dgkit.empty(4096, on="bar")
    array = memory.array
    memory.close()
    with dgkit.empty(4096, on="bar") as other:
        assert where(other) == 524288 + whole(4096)
    assert isinstance(array, np.ndarray)
    del array
    with dgkit.empty(4096, on="bar") as other:
        assert where(other) == 524288


def test_a_full_bar_is_an_error_and_nothing_is_allocated(path):
    with dgkit.empty(ROOM, on="bar"), pytest.raises(OutOfMemory, match=f"BAR with {ROOM:,}"):
        dgkit.empty(1, on="bar")
    with pytest.raises(OutOfMemory):
        dgkit.empty(ROOM + 1, on="bar")
    with dgkit.empty(ROOM, on="bar"):
        pass


def test_a_read_only_bar_is_refused(path):
    with pytest.raises(Unsupported, match="access='r'"):
        dgkit.empty(64, on="bar", readonly_export=True)


def test_a_bar_of_another_version_is_refused(path):
    put(path, "<I", 8, 99)
    with pytest.raises(DeviceUnavailable, match="release of dgkit"):
        dgkit.empty(64, on="bar")


def test_memory_of_a_killed_process_is_free(path):
    source = (
        "import signal; from dgkit.memory import bar; import dgkit;"
        f"bar._where = lambda: ({str(path)!r}, 0, {SIZE});"
        f"memory = dgkit.empty({ROOM}, on='bar'); print('has it', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"has it\n"
        with pytest.raises(OutOfMemory):
            dgkit.empty(64, on="bar")
        other.send_signal(signal.SIGKILL)
    with dgkit.empty(ROOM, on="bar") as memory:
        assert memory.size == ROOM


def test_an_export_in_the_bar_is_an_entry_of_its_table(path):
    with dgkit.Device("soft") as device, dgkit.empty(5000, on="bar") as memory:
        region = device.register(memory, "r", offset=8)
        assert "bar, which is emulated" in repr(region)
        assert "emulated PCI bar" in region._repr_html_()
        with device.queue() as queue:
            assert "emulated bar" in repr(queue)
        region.export()
        entry = [field(path, kind, 4096 + at) for kind, at in (("I", 0), ("I", 4))]
        entry += [field(path, "Q", 4096 + at) for at in (8, 16)]
        assert entry == [OPEN, 1, 524288 + 8, 4992]
        region.close()
        assert field(path, "I", 4096) == 0


def test_a_provider_of_another_engine_refuses_memory_in_a_bar(path):
    with (
        dgkit.Device("softdoca") as device,
        dgkit.empty(64, on="bar") as memory,
        pytest.raises(Unsupported, match="provider soft, not softdoca"),
    ):
        device.register(memory)


def test_the_provider_fault_over_soft_copies_memory_in_a_bar(path):
    with dgkit.Device("fault") as device, dgkit.empty(64, on="bar") as memory:
        region, local = device.register(memory), device.register(bytearray(b"fault"))
        with device.import_region(region.export()) as remote, device.queue() as queue:
            queue.write(local, remote, size=5).wait()
        assert bytes(memory.buffer[:5]) == b"fault"


def test_another_region_of_this_process_reaches_it_as_host_memory(path):
    with dgkit.Device("soft") as device, dgkit.empty(64, on="bar") as memory:
        memory.buffer[:] = bytes(range(64))
        target = bytearray(64)
        region, local = device.register(memory), device.register(target)
        with device.import_region(region.export()) as remote, device.queue() as queue:
            queue.read(local, remote).wait()
            assert (target, remote.method) == (bytes(range(64)), "map")


def test_bytes_of_a_dead_exporter_wait_for_its_importers_transfers(path):
    """As after a kill -9 of a process whose export an importer uses."""
    page, slot = 4096 * 3, 4096 * 3 + 256
    put(path, "I", page, OPEN)
    put(path, "Q", page + 8, 524288)
    put(path, "Q", page + 16, 8192)
    put(path, "I", slot + 128, 1)  # claimed
    put(path, "Q", slot, 5)  # posted
    put(path, "Q", slot + 64, 4)  # done
    with dgkit.empty(64, on="bar") as memory:
        assert where(memory) == 524288 + whole(8192)
    assert field(path, "I", slot + 72) == 1  # revoked
    put(path, "Q", slot + 64, 5)
    with dgkit.empty(64, on="bar") as memory:
        assert where(memory) == 524288
    assert field(path, "Q", page + 16) == 0
    assert field(path, "I", page) == 3  # lost, until the importer gives its slot back
    put(path, "I", slot + 128, 0)
    put(path, "Q", page + 16, 8192)
    with dgkit.empty(64, on="bar") as memory:
        assert where(memory) == 524288
    assert field(path, "I", page) == 0
