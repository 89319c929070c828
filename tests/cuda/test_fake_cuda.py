# SPDX-License-Identifier: Apache-2.0
"""The fake driver is a fair double of the driver: what it shares, refuses and loses, as it does."""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import support.gpu.driver as rig
from cuda.bindings import driver
from support.gpu.driver_cases import CODES
from support.processes.children import child, run
from support.processes.waiting import until

# Maps the block of the exporter's fd, with an access, and evaluates what it reads.
IMPORTER = """
import os, sys
from support.gpu.driver import *
begin()
fd = os.open(sys.argv[1], os.O_RDWR)
block = call("cuMemImportFromShareableHandle", fd, POSIX_FD)
address = mapped(block, eval(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""

OPENER = """
import sys
from support.gpu.driver import *
begin()
handle = driver.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
answer, address = ask("cuIpcOpenMemHandle", handle, 1)
print(answer, flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def context() -> None:
    rig.begin()


@pytest.fixture
def block(fake_cuda) -> Iterator[SimpleNamespace]:
    """A block of virtual memory: its handle, its address, an fd and that fd's path."""
    _, handle = rig.create()
    address, fd = rig.mapped(handle), rig.export(handle)
    path = f"/proc/{os.getpid()}/fd/{fd}"
    yield SimpleNamespace(handle=handle, address=address, fd=fd, path=path)
    fake_cuda.order("")
    os.close(fd)
    rig.unmap(address)
    rig.call("cuMemRelease", handle)


@pytest.fixture
def stream(fake_cuda) -> Iterator[driver.CUstream]:
    made = rig.call("cuStreamCreate", 1)
    yield made
    fake_cuda.order("")
    rig.call("cuStreamDestroy", made)


@pytest.fixture
def flag(fake_cuda) -> Iterator[SimpleNamespace]:
    """A word of the host that a GPU reaches: `at` is its address, `seen()` what it holds."""
    at = int(rig.call("cuMemHostAlloc", 4096, rig.PORTABLE))
    word = ctypes.c_uint32.from_address(at)
    word.value = 0
    yield SimpleNamespace(at=at, seen=lambda: word.value)
    fake_cuda.order("")
    rig.call("cuMemFreeHost", at)


def free() -> int:
    return int(rig.call("cuMemGetInfo")[0])


# The context is lost at the end: nothing may be cleaned up.
ANSWERS = """
import os
from support.gpu import driver_cases
print(driver_cases.answers(), flush=True)
os._exit(0)
"""


@pytest.mark.any_gpu
def test_it_answers_as_the_h200_did() -> None:
    assert eval(run(ANSWERS)) == CODES


def test_two_processes_that_share_a_block_see_each_others_bytes(block) -> None:
    with child(IMPORTER, block.path, "WRITE") as other:
        assert other.line() == "ready"
        assert rig.write(block.address + 100, b"from here") == 0
        assert eval(other.ask("read(address + 100, 9)")) == b"from here"
        assert other.ask("write(address + 200, b'from there')") == "0"
        assert rig.read(block.address + 200, 10) == b"from there"


def test_a_block_lives_as_long_as_one_process_maps_it(block) -> None:
    _, handle = rig.create()
    address, fd = rig.mapped(handle), rig.export(handle)
    with child(IMPORTER, f"/proc/{os.getpid()}/fd/{fd}", "WRITE") as other:
        assert other.line() == "ready"
        assert rig.write(address, b"kept") == 0
        os.close(fd)
        rig.unmap(address)
        rig.call("cuMemRelease", handle)
        assert eval(other.ask("read(address, 4)")) == b"kept"


def test_a_read_only_import_refuses_each_write_and_lives_on(block) -> None:
    assert rig.write(block.address, b"untouched") == 0
    with child(IMPORTER, block.path, "READ") as other:
        assert other.line() == "ready"
        assert other.ask("write(address, b'changed!!')") == "1"
        assert eval(other.ask("read(address, 9)")) == b"untouched"
    assert rig.read(block.address, 9) == b"untouched"


def test_a_cuda_ipc_handle_opens_in_another_process_only(fake_cuda) -> None:
    address = int(rig.call("cuMemAlloc", 1000))
    handle = rig.call("cuIpcGetMemHandle", address)
    text = ctypes.string_at(handle.getPtr(), 64).hex()
    assert rig.code("cuIpcOpenMemHandle", handle, 1) == 201
    assert rig.write(address, b"shared") == 0
    with child(OPENER, text) as other:
        assert other.line() == "0"
        assert eval(other.ask("read(address, 6)")) == b"shared"
        assert other.ask("code('cuIpcCloseMemHandle', address)") == "0"
    rig.call("cuMemFree", address)
    with child(OPENER, text) as late:
        assert late.line() == "1"


def test_memory_that_comes_is_not_zero(block) -> None:
    assert rig.read(block.address, 64) != bytes(64)
    assert rig.read(block.address + rig.SIZE - 64, 64) != bytes(64)


def test_memory_is_counted_until_no_handle_and_no_mapping_has_it(fake_cuda) -> None:
    before = free()
    _, handle = rig.create()
    address = rig.mapped(handle)
    rig.call("cuMemRelease", handle)
    assert free() == before - rig.SIZE
    rig.unmap(address)
    assert free() == before


def test_a_gpu_can_be_full(fake_cuda) -> None:
    used = int(rig.call("cuMemGetInfo")[1]) - free()
    fake_cuda.order(f"total={used + rig.SIZE}")
    answer, handle = rig.create()
    assert answer == 0
    assert rig.create()[0] == 2
    assert rig.code("cuMemAlloc", 1) == 2
    rig.call("cuMemRelease", handle)


def test_copies_are_done_in_order_and_not_before_they_are_asked_after(block, stream) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        begun.set()
        go_on.wait(10)

    held = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hold)
    function = driver.CUhostFn(_ptr=ctypes.addressof(held))
    assert rig.write(block.address, b"before") == 0
    rig.call("cuLaunchHostFunc", stream, function, 0)
    assert rig.code("cuMemcpyHtoDAsync", block.address, b"after!", 6, stream) == 0
    assert begun.wait(10)
    assert rig.code("cuStreamQuery", stream) == 600
    assert rig.read(block.address, 6) == b"before"
    go_on.set()
    rig.call("cuStreamSynchronize", stream)
    assert rig.read(block.address, 6) == b"after!"


def test_a_value_is_written_when_all_before_it_is_done(block, stream, flag) -> None:
    rig.call("cuMemcpyHtoDAsync", block.address, b"data", 4, stream)
    rig.call("cuStreamWriteValue32", stream, flag.at, 7, 0)
    until(lambda: flag.seen() == 7, "the value is written")
    assert rig.read(block.address, 4) == b"data"


def test_a_stream_waits_for_a_value(block, stream, flag) -> None:
    rig.call("cuStreamWaitValue32", stream, flag.at, 3, 0)
    rig.call("cuStreamWriteValue32", stream, flag.at, 9, 0)
    assert rig.code("cuStreamQuery", stream) == 600
    ctypes.c_uint32.from_address(flag.at).value = 3
    until(lambda: flag.seen() == 9, "the wait has ended")


def test_rows_are_copied_with_their_pitches(block, stream) -> None:
    given = rig.rows(block.address, 0, 4, 8, 6)
    source = ctypes.create_string_buffer(b"aaaa..bbbb..")
    given.srcHost = ctypes.addressof(source)
    assert rig.write(block.address, b"-" * 16) == 0
    rig.call("cuMemcpy2DAsync", given, stream)
    rig.call("cuStreamSynchronize", stream)
    assert rig.read(block.address, 16) == b"aaaa----bbbb----"


def test_a_batch_is_copied_whole_or_refused_whole(block, stream) -> None:
    sources = [ctypes.create_string_buffer(letter * 8, 8) for letter in (b"a", b"b")]
    places = [ctypes.addressof(source) for source in sources]
    assert rig.write(block.address, b"-" * 24) == 0
    assert rig.batch(stream, [block.address, 0x1000], places, [8, 8]) != 0
    assert rig.batch(stream, [block.address + 16, block.address + 8], places, [8, 8]) == 0
    rig.call("cuStreamSynchronize", stream)
    assert rig.read(block.address, 24) == b"-" * 8 + b"b" * 8 + b"a" * 8


def test_what_is_unmapped_under_a_copy_costs_the_context() -> None:
    program = """
import time
from support.gpu.driver import *
begin()
_, block = create()
address, stream = mapped(block), call("cuStreamCreate", 1)
ctypes.CDLL("libcuda.so.1").dgkitFakeCuda(b"copy_us=50000")
call("cuMemcpyHtoDAsync", address, b"late", 4, stream)
unmap(address)
print(code("cuStreamSynchronize", stream), code("cuCtxSynchronize"))
"""
    assert run(program).split() == ["700", "700"]


def test_a_fault_begins_at_the_call_it_was_ordered_for(fake_cuda) -> None:
    fake_cuda.order("cuMemAlloc=2@2,cuMemFree=1")
    answer, address = rig.ask("cuMemAlloc", 4096)
    assert answer == 0
    assert rig.code("cuMemAlloc", 4096) == 2
    assert rig.code("cuMemAlloc", 4096) == 2
    assert fake_cuda.calls("cuMemAlloc") == 3
    assert rig.code("cuMemFree", address) == 1
    fake_cuda.order("")
    assert rig.code("cuMemFree", address) == 0


@pytest.mark.parametrize("code", [34, 100, 803, 804, 802, 999])
def test_cuinit_can_fail(code: int) -> None:
    program = "from support.gpu.driver import *\nprint(code('cuInit', 0), code('cuDeviceGetCount'))"
    assert run(program, DGKIT_FAKE_CUDA=f"cuInit={code}").split() == [str(code), "3"]


def test_a_function_can_be_missing() -> None:
    program = """
from support.gpu.driver import *
begin()
try:
    code("cuMemcpyBatchAsync", [], [], [], 0, [], [], 0, 0)
except RuntimeError as error:
    print(error)
"""
    assert "cuMemcpyBatchAsync" in run(
        program, DGKIT_FAKE_CUDA="missing=cuInit_+cuMemcpyBatchAsync"
    )


def test_there_can_be_two_gpus_whose_memory_is_apart() -> None:
    program = """
from support.gpu.driver import *
begin(1)
names = [call("cuDeviceGetPCIBusId", 32, gpu) for gpu in range(call("cuDeviceGetCount"))]
_, block = create(gpu=1)
there = mapped(block, gpu=1)
print(len(set(names)), call("cuDeviceCanAccessPeer", 0, 1), write(there, b"x"))
begin(0)
print(write(there, b"x"), code("cuDeviceGet", 2))
"""
    found = run(program, DGKIT_FAKE_CUDA="gpus=2,peer=0").split()
    assert found == ["2", "0", "0", "1", "101"]


def test_the_copy_after_which_the_context_is_lost_is_the_one_ordered() -> None:
    program = """
from support.gpu.driver import *
begin()
_, block = create()
address, stream = mapped(block), call("cuStreamCreate", 1)
at = int(call("cuMemHostAlloc", 4096, PORTABLE))
word = ctypes.c_uint32.from_address(at)
word.value = 0
print(write(address, b"1"), write(address, b"2"))
call("cuMemcpyHtoDAsync", address, b"3", 1, stream)
code("cuStreamWriteValue32", stream, at, 1, 0)
print(code("cuStreamSynchronize", stream), code("cuMemAlloc", 4096), word.value)
"""
    assert run(program, DGKIT_FAKE_CUDA="lost@2").split() == ["0", "0", "700", "700", "0"]


@pytest.mark.parametrize(("order", "maps"), [("", False), ("dmabuf_mmap=1", True)])
def test_a_dma_buf_is_mapped_by_the_cpu_only_if_ordered(fake_cuda, block, order, maps) -> None:
    fake_cuda.order(order)
    assert rig.write(block.address, b"seen") == 0
    range_type = rig.DMA_BUF
    fd = int(rig.call("cuMemGetHandleForAddressRange", block.address, 4096, range_type, 0))
    try:
        if maps:
            with mmap.mmap(fd, 4096) as view:
                assert view[:4] == b"seen"
        else:
            with pytest.raises(OSError, match="denied"):
                mmap.mmap(fd, 4096)
    finally:
        os.close(fd)


def test_threads_may_use_it_at_once(fake_cuda) -> None:
    before, failed = free(), []

    def work() -> None:
        try:
            rig.begin()
            stream = rig.call("cuStreamCreate", 1)
            for number in range(50):
                address, data = int(rig.call("cuMemAlloc", 4096)), bytes([number]) * 4096
                rig.call("cuMemcpyHtoDAsync", address, data, 4096, stream)
                rig.call("cuStreamSynchronize", stream)
                assert rig.read(address, 4096) == data
                rig.call("cuMemFree", address)
            rig.call("cuStreamDestroy", stream)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert free() == before
