# SPDX-License-Identifier: Apache-2.0
"""What CUDA's driver answers where it refuses: each case, and the code that an H200 gave.

`python tests/support/gpu/driver_cases.py` runs the cases over the installed driver and prints each
code, with a mark where it differs from the recorded one. The codes come from an NVIDIA H200
(open kernel modules 580.159.04, CUDA 13.0); test_fake_cuda.py holds both drivers to them.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator

import support.gpu.driver as raw
from cuda.bindings import driver
from support.gpu.driver import (
    DMA_BUF,
    PORTABLE,
    POSIX_FD,
    SIZE,
    Rig,
    ask,
    call,
    code,
    create,
)

READ_ONLY = 8
SYNC_MEMOPS = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
Answers = Iterator[tuple[str, int]]

CODES = {
    "read-only: import it": 0,
    "read-only: copy from the host into it": 1,
    "read-only: copy rows into it": 1,
    "read-only: a batch into it": 1,
    "read-only: copy from the GPU into it": 1,
    "read-only: copy out of it": 0,
    "read-only: the stream afterwards": 0,
    "read-only: export what was imported": 1,
    "registered: two ranges of one page": 0,
    "registered: the same again": 712,
    "registered: what overlaps it": 712,
    "registered: what lies within it": 712,
    "registered: copy all of it": 0,
    "registered: copy what begins before it": 0,
    "registered: copy beyond its end": 1,
    "registered: copy rows beyond its end": 1,
    "registered: copy to beyond its end": 1,
    "registered: copy what is not": 0,
    "registered: copy to what is not": 0,
    "registered: unregister": 0,
    "registered: unregister again": 713,
    "registered: read-only pages": 1,
    "registered: read-only pages, said so": 0,
    "copy: to no address of a GPU": 1,
    "copy: no bytes": 0,
    "copy: rows wider than their pitch": 1,
    "copy: rows with no pitch": 0,
    "copy: rows with a pitch beyond the largest": 1,
    "memory: a block of 1000 bytes": 1,
    "memory: a block beyond all memory": 2,
    "memory: cuMemAlloc beyond all memory": 2,
    "memory: export a block made without": 1,
    "memory: import what is no block": 999,
    "virtual: SYNC_MEMOPS": 801,
    "virtual: CUDA IPC": 1,
    "virtual: retain its block": 0,
    "virtual: dma-buf": 0,
    "virtual: dma-buf of an address that is not aligned": 1,
    "virtual: dma-buf of a size that is not aligned": 1,
    "virtual: dma-buf with the PCIe mapping": 801,
    "managed: CUDA IPC": 1,
    "managed: dma-buf": 1,
    "pool: SYNC_MEMOPS": 0,
    "pool: CUDA IPC": 1,
    "pool: retain its block": 1,
    "pool: dma-buf": 0,
    "host: dma-buf": 1,
    "forked: cuInit": 3,
    "forked: cuDeviceGetCount": 3,
    "forked: cuMemAlloc": 3,
    "forked: cuDevicePrimaryCtxRetain": 3,
    "lost: cuStreamQuery": 700,
    "lost: cuMemcpyHtoDAsync": 700,
    "lost: cuMemcpy2DAsync": 700,
    "lost: cuStreamWriteValue32": 700,
    "lost: cuStreamSynchronize": 700,
    "lost: cuMemHostAlloc": 700,
    "lost: cuStreamCreate": 700,
    "lost: cuStreamDestroy": 700,
    "lost: cuMemCreate": 0,
    "lost: cuMemUnmap": 0,
    "lost: cuDeviceGetCount": 0,
    "lost: cuDevicePrimaryCtxRetain": 0,
    "lost: cuDevicePrimaryCtxRelease": 0,
    "lost: cuDevicePrimaryCtxReset": 0,
    "lost: cuDevicePrimaryCtxRetain after the reset": 700,
}


def read_only(rig: Rig) -> Answers:
    fd = raw.export(rig.block)
    answer, block = ask("cuMemImportFromShareableHandle", fd, POSIX_FD)
    os.close(fd)
    address = raw.mapped(block, raw.READ)
    yield "import it", answer
    yield "copy from the host into it", rig.to_gpu(rig.host, 8, address)
    given = raw.rows(address, rig.host, 4, 4, 4)
    yield "copy rows into it", code("cuMemcpy2DAsync", given, rig.stream)
    yield "a batch into it", raw.batch(rig.stream, [address, address + 64], [rig.host] * 2, [8, 8])
    answer = code("cuMemcpyDtoDAsync", address, rig.gpu, 8, rig.stream)
    yield "copy from the GPU into it", answer
    yield "copy out of it", rig.to_host(rig.host, 8, address)
    yield "the stream afterwards", code("cuStreamSynchronize", rig.stream)
    answer, retained = ask("cuMemRetainAllocationHandle", address)
    yield "export what was imported", code("cuMemExportToShareableHandle", retained, POSIX_FD, 0)
    call("cuMemRelease", retained)
    raw.unmap(address)
    call("cuMemRelease", block)


def registered(rig: Rig) -> Answers:
    start = rig.host

    def register(at: int, size: int, flags: int = PORTABLE) -> int:
        return code("cuMemHostRegister", at, size, flags)

    yield "two ranges of one page", register(start + 100, 200) or register(start + 1000, 200)
    yield "the same again", register(start + 100, 200)
    yield "what overlaps it", register(start + 250, 200)
    yield "what lies within it", register(start + 150, 50)
    yield "copy all of it", rig.to_gpu(start + 100, 200)
    yield "copy what begins before it", rig.to_gpu(start + 50, 200)
    yield "copy beyond its end", rig.to_gpu(start + 250, 200)
    yield "copy rows beyond its end", rig.rows_to_gpu(start + 250, 100, 100, 100)
    yield "copy to beyond its end", rig.to_host(start + 250, 200)
    yield "copy what is not", rig.to_gpu(start + 2000, 200)
    yield "copy to what is not", rig.to_host(start + 2000, 200)
    call("cuStreamSynchronize", rig.stream)
    call("cuMemHostUnregister", start + 1000)
    yield "unregister", code("cuMemHostUnregister", start + 100)
    yield "unregister again", code("cuMemHostUnregister", start + 100)
    libc = ctypes.CDLL(None, use_errno=True)
    page = start + 8 * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ) == 0
    yield "read-only pages", register(page, mmap.PAGESIZE)
    yield "read-only pages, said so", register(page, mmap.PAGESIZE, PORTABLE | READ_ONLY)
    call("cuMemHostUnregister", page)


def copy(rig: Rig) -> Answers:
    yield "to no address of a GPU", rig.to_gpu(rig.host, 8, 0x1234000)
    yield "no bytes", rig.to_gpu(rig.host, 0)
    yield "rows wider than their pitch", rig.rows_to_gpu(rig.host, 64, 32, 64)
    yield "rows with no pitch", rig.rows_to_gpu(rig.host, 64, 64, 0)
    yield "rows with a pitch beyond the largest", rig.rows_to_gpu(rig.host, 1, 1 << 32, 64)
    call("cuStreamSynchronize", rig.stream)


def memory(_: Rig) -> Answers:
    _, total = call("cuMemGetInfo")
    too_much = (total // SIZE + 1) * SIZE
    yield "a block of 1000 bytes", create(1000)[0]
    yield "a block beyond all memory", create(too_much)[0]
    yield "cuMemAlloc beyond all memory", code("cuMemAlloc", too_much)
    _, block = create(handle_type=raw.NO_FD)
    yield "export a block made without", code("cuMemExportToShareableHandle", block, POSIX_FD, 0)
    call("cuMemRelease", block)
    null = os.open("/dev/null", os.O_RDWR)
    yield "import what is no block", code("cuMemImportFromShareableHandle", null, POSIX_FD)
    os.close(null)


def dma_buf(address: int, size: int = mmap.PAGESIZE, flags: int = 0) -> int:
    answer, fd = ask("cuMemGetHandleForAddressRange", address, size, DMA_BUF, flags)
    if not answer:
        os.close(int(fd))
    return answer


def sync_memops(address: int) -> int:
    return code("cuPointerSetAttribute", True, SYNC_MEMOPS, address)


def retain(address: int) -> int:
    answer, block = ask("cuMemRetainAllocationHandle", address)
    if not answer:
        call("cuMemRelease", block)
    return answer


def virtual(rig: Rig) -> Answers:
    yield "SYNC_MEMOPS", sync_memops(rig.gpu)
    yield "CUDA IPC", code("cuIpcGetMemHandle", rig.gpu)
    yield "retain its block", retain(rig.gpu)
    yield "dma-buf", dma_buf(rig.gpu)
    yield "dma-buf of an address that is not aligned", dma_buf(rig.gpu + 1)
    yield "dma-buf of a size that is not aligned", dma_buf(rig.gpu, mmap.PAGESIZE + 1)
    yield "dma-buf with the PCIe mapping", dma_buf(rig.gpu, flags=1)


def managed(_: Rig) -> Answers:
    address = int(call("cuMemAllocManaged", SIZE, 1))
    yield "CUDA IPC", code("cuIpcGetMemHandle", address)
    yield "dma-buf", dma_buf(address)
    call("cuMemFree", address)


def pool(rig: Rig) -> Answers:
    address = int(call("cuMemAllocAsync", SIZE, rig.stream))
    yield "SYNC_MEMOPS", sync_memops(address)
    yield "CUDA IPC", code("cuIpcGetMemHandle", address)
    yield "retain its block", retain(address)
    yield "dma-buf", dma_buf(address)
    call("cuMemFreeAsync", address, rig.stream)


def host(rig: Rig) -> Answers:
    yield "dma-buf", dma_buf(rig.host)


def forked(_: Rig) -> Answers:
    """Asked in a child that was forked with CUDA initialised."""
    asked = {
        "cuInit": (0,),
        "cuDeviceGetCount": (),
        "cuMemAlloc": (4096,),
        "cuDevicePrimaryCtxRetain": (0,),
    }
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        codes = [code(name, *args) for name, args in asked.items()]
        os.write(theirs, bytes(codes))
        os._exit(0)
    os.waitpid(child, 0)
    yield from zip(asked, os.read(ours, 64), strict=True)
    os.close(ours)
    os.close(theirs)


def lost(rig: Rig) -> Answers:
    """Asked when the context is lost. The process can do nothing on this GPU any more."""
    yield "cuStreamQuery", code("cuStreamQuery", rig.stream)
    yield "cuMemcpyHtoDAsync", rig.to_gpu(rig.host, 8)
    yield "cuMemcpy2DAsync", rig.rows_to_gpu(rig.host, 4, 4, 4)
    yield "cuStreamWriteValue32", code("cuStreamWriteValue32", rig.stream, rig.gpu, 1, 0)
    yield "cuStreamSynchronize", code("cuStreamSynchronize", rig.stream)
    yield "cuMemHostAlloc", code("cuMemHostAlloc", 4096, PORTABLE)
    yield "cuStreamCreate", code("cuStreamCreate", 1)
    yield "cuStreamDestroy", code("cuStreamDestroy", rig.stream)
    yield "cuMemCreate", create()[0]
    yield "cuMemUnmap", code("cuMemUnmap", rig.gpu, SIZE)
    yield "cuDeviceGetCount", code("cuDeviceGetCount")
    yield "cuDevicePrimaryCtxRetain", code("cuDevicePrimaryCtxRetain", 0)
    yield "cuDevicePrimaryCtxRelease", code("cuDevicePrimaryCtxRelease", 0)
    yield "cuDevicePrimaryCtxReset", code("cuDevicePrimaryCtxReset", 0)
    yield "cuDevicePrimaryCtxRetain after the reset", code("cuDevicePrimaryCtxRetain", 0)


SECTIONS: list[Callable[[Rig], Answers]] = [read_only, registered, copy, memory, virtual, managed]
SECTIONS += [pool, host, forked]


def answers() -> dict[str, int]:
    """Return the code of each case; the GPU loses the context of this process at the end."""
    fake_cuda = hasattr(ctypes.CDLL("libcuda.so.1"), "dgkitFakeCuda")
    lose = lose_by_order if fake_cuda else lose_by_kernel
    rig, found = Rig(), {}
    for section in [*SECTIONS, lost]:
        if section is lost:
            lose(rig)
        title = section.__name__.replace("_", "-")
        found.update({f"{title}: {case}": answer for case, answer in section(rig)})
    return found


def lose_by_kernel(rig: Rig) -> None:
    """A kernel that writes where nothing is."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void lose(int *p) { *p = 1; }', "lose")
    kernel((1,), (1,), (0x1000,))
    code("cuCtxSynchronize")


def lose_by_order(rig: Rig) -> None:
    """The fake driver's way."""
    ctypes.CDLL("libcuda.so.1").dgkitFakeCuda(b"lost@0")
    code("cuMemsetD8", rig.gpu, 0, 1)
    rig.to_gpu(rig.host, 8)
    code("cuStreamSynchronize", rig.stream)


def main() -> int:
    """Return 1 if a code differs from the expected one, else 0."""
    found = answers()
    for case, answer in found.items():
        print(f"{answer:>4} {case}" + ("" if answer == CODES[case] else f"  (not {CODES[case]})"))
    return int(found != CODES)


if __name__ == "__main__":
    raise SystemExit(main())
