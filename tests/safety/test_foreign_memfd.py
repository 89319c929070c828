# SPDX-License-Identifier: Apache-2.0
"""A memfd of the user's own, through the Memory protocol: only a safe one is exported."""

import fcntl
import mmap
import os
from dataclasses import dataclass

import pytest
from support.dma import keep
from support.processes.children import IMPORTER, child

from dgkit import Device
from dgkit.errors import ExportError
from dgkit.types import is_memory

ADD_SEALS, SHRINK, GROW = 1033, 0x2, 0x4
SIZE = 8192


@dataclass(frozen=True, slots=True)
class Own:
    """A Memory as a user may write one: frozen, so that dgkit cannot put anything in it."""

    buffer: memoryview
    size: int
    fd: int
    fd_offset: int = 0
    place: str = "host"
    share_process: bool = False


@pytest.fixture
def memfd():
    fd = os.memfd_create("own", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    yield fd
    os.close(fd)


@pytest.fixture
def device():
    with Device() as opened:
        yield keep(opened)


def own(fd, size=SIZE, offset=0):
    return Own(memoryview(mmap.mmap(-1, size)), size, fd, offset)


def test_an_own_class_is_a_memory(memfd):
    assert is_memory(own(memfd))


def test_a_memfd_that_is_not_sealed_is_refused(device, memfd):
    for seals in (0, GROW):
        fcntl.fcntl(memfd, ADD_SEALS, seals)
        with pytest.raises(ExportError, match=r"not sealed against shrinking \(F_SEAL_SHRINK\)"):
            device.register(own(memfd))


def test_a_memfd_that_is_shorter_than_it_says_is_refused(device, memfd):
    fcntl.fcntl(memfd, ADD_SEALS, SHRINK)
    with pytest.raises(ExportError, match="the memfd has 8192 bytes, but 8193 are needed"):
        device.register(own(memfd, SIZE + 1))
    with pytest.raises(ExportError, match="but 12288 are needed"):
        device.register(own(memfd, SIZE, offset=4096))


def test_a_sealed_memfd_is_mapped_by_the_importer_at_its_offset(device, memfd):
    fcntl.fcntl(memfd, ADD_SEALS, SHRINK | GROW)
    mapped = mmap.mmap(memfd, SIZE)
    memory = Own(memoryview(mapped)[4096:], 4096, memfd, 4096)
    memory.buffer[:5] = b"there"
    region = device.register(memory, offset=1)
    with child(IMPORTER, region.export().hex()) as importer:
        assert importer.line() == "map"
        assert importer.ask("queue.read(local, remote).wait(5).size") == "4095"
        assert importer.ask("bytes(memory[:4])") == "b'here'"
        write = "queue.write(local, remote, size=4, remote_offset=4091).wait(5).size"
        assert importer.ask(write) == "4"
        assert importer.end() == (0, "")
    assert bytes(mapped[-4:]) == b"here"


def test_a_memory_without_an_fd_and_without_room_for_what_dgkit_learns_works(device):
    region = device.register(own(-1))
    assert device.import_region(region.export()).size == SIZE
