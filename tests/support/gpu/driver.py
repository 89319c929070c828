# SPDX-License-Identifier: Apache-2.0
"""Raw calls of CUDA's driver, for tests and for the programs that they start."""

import ctypes
import mmap

from cuda.bindings import driver

POSIX_FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
NO_FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
DMA_BUF = driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
READ = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
WRITE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
PORTABLE = 3  # with DEVICEMAP
SIZE = 2 << 20  # bytes of a block: the allocation granularity


def ask(name, *args):
    """Return the result code of a driver function, and its output."""
    code, *given = getattr(driver, name)(*args)
    return int(code), given[0] if len(given) == 1 else given


def code(name, *args):
    return ask(name, *args)[0]


def call(name, *args):
    """Return the output of a driver function, which must return 0."""
    answer, given = ask(name, *args)
    assert answer == 0, f"{name} answers {answer}"
    return given


def begin(gpu=0):
    """Make a context current."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", gpu)))


def create(size=SIZE, gpu=0, handle_type=POSIX_FD):
    """Return the result code of cuMemCreate, and the block."""
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type, wanted.location.id = DEVICE, gpu
    wanted.requestedHandleTypes = handle_type
    return ask("cuMemCreate", size, wanted, 0)


def mapped(block, access=WRITE, gpu=0):
    """Map a block of SIZE bytes for this GPU, and return its address."""
    address = call("cuMemAddressReserve", SIZE, 0, 0, 0)
    call("cuMemMap", address, SIZE, 0, block, 0)
    right = driver.CUmemAccessDesc()
    right.location.type, right.location.id, right.flags = DEVICE, gpu, access
    call("cuMemSetAccess", address, SIZE, [right], 1)
    return int(address)


def unmap(address):
    call("cuMemUnmap", address, SIZE)
    call("cuMemAddressFree", address, SIZE)


def export(block):
    """Return a POSIX fd of a block."""
    return int(call("cuMemExportToShareableHandle", block, POSIX_FD, 0))


def read(address, size):
    """Return bytes of GPU memory."""
    into = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH", ctypes.addressof(into), address, size)
    return into.raw


def write(address, data):
    """Return the result code of a copy to a GPU."""
    return code("cuMemcpyHtoD", address, data, len(data))


def rows(to, source, width, to_pitch, pitch):
    """Return the parameters of a copy of two rows from host memory to GPU memory."""
    kinds = driver.CUmemorytype
    it = driver.CUDA_MEMCPY2D()
    it.srcMemoryType, it.srcHost, it.srcPitch = kinds.CU_MEMORYTYPE_HOST, source, pitch
    it.dstMemoryType, it.dstDevice, it.dstPitch = kinds.CU_MEMORYTYPE_DEVICE, to, to_pitch
    it.WidthInBytes, it.Height = width, 2
    return it


def batch(stream, to, source, sizes):
    """Return the result code of a batch of copies, with the one required attribute."""
    how = driver.CUmemcpyAttributes()
    how.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    to, source = ([driver.CUdeviceptr(one) for one in many] for many in (to, source))
    return code("cuMemcpyBatchAsync", to, source, sizes, len(sizes), [how], [0], 1, stream)


class Rig:
    """A context, a mapped block, a stream, and 16 pages of host memory."""

    def __init__(self) -> None:
        begin()
        self.block = create()[1]
        self.gpu = mapped(self.block)
        self.stream = call("cuStreamCreate", 1)
        self.pages = mmap.mmap(-1, 16 * mmap.PAGESIZE)
        self.host = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))

    def to_gpu(self, source: int, size: int, to: int | None = None) -> int:
        return code("cuMemcpyHtoDAsync", self.gpu if to is None else to, source, size, self.stream)

    def to_host(self, to: int, size: int, source: int | None = None) -> int:
        address = self.gpu if source is None else source
        return code("cuMemcpyDtoHAsync", to, address, size, self.stream)

    def rows_to_gpu(self, source: int, width: int, to_pitch: int, pitch: int) -> int:
        given = rows(self.gpu, source, width, to_pitch, pitch)
        return code("cuMemcpy2DAsync", given, self.stream)
