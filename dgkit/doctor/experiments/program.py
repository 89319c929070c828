# SPDX-License-Identifier: Apache-2.0
"""Experiments, each run in a child process: `main(["gpu-copy", "0", "1"])` prints one JSON answer.

The answer has `done` (true, false, or null if the experiment could not be run) and `said`. None
changes a setting: memory, contexts, registrations and queues are made here and freed again.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..collect.probes import error_name, load_library, protection_domain

_COPIED = 1 << 20  # bytes of a copy between GPUs, and of a registration
_MOVED = 1 << 16  # bytes of a round trip to a GPU, and of an RDMA loopback
_SMALL = 4096  # bytes of a DOCA DMA
_BLOCK = 2 << 20  # CUDA's allocation granularity, so that the bytes have pages of their own
_DMA_BUF_FD = 1  # CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
_ACCESS = 1 | 2 | 4  # IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_READ
_HOST = "host"


class ExperimentFailed(Exception):
    """The experiment was run, and failed."""


class ExperimentNotRun(Exception):
    """The experiment could not be run."""


class Cuda:
    """The CUDA driver; a call that fails raises ExperimentFailed with the error's name."""

    def __init__(self) -> None:
        self._library, why = load_library("libcuda.so.1")
        if self._library is None:
            raise ExperimentNotRun(why)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver."""
        function = getattr(self._library, name, None)
        if function is None:
            raise ExperimentFailed(f"this driver has no {name}")
        if code := function(*arguments):
            said = error_name(self._library, code) or f"error {code}"
            raise ExperimentFailed(f"{name}: {said}")


class GpuBytes:
    """Memory on a GPU, in its primary context; the Memory protocol as far as `register` needs it.

    It is freed with the process.
    """

    fd, fd_offset, share_process = -1, 0, False

    def __init__(self, cuda: Cuda, gpu: int, size: int) -> None:
        from ...types import GpuSpan

        self.cuda, self.number, self.size, self.place = cuda, gpu, size, f"cuda:{gpu}"
        device, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
        self._context, address = ctypes.c_void_p(), ctypes.c_uint64()
        cuda.call("cuDeviceGet", ctypes.byref(device), gpu)
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.use()
        block = ctypes.c_size_t(-(-size // _BLOCK) * _BLOCK)
        cuda.call("cuMemAlloc_v2", ctypes.byref(address), block)
        cuda.call("cuDeviceGetUuid", uuid, device)
        self.address = address.value
        self.gpu = GpuSpan(
            kind="none", address=self.address, size=size, gpu=gpu, uuid=uuid.raw, why="freed soon"
        )

    @property
    def context(self) -> ctypes.c_void_p:
        """Primary context of the GPU."""
        return self._context

    def use(self) -> None:
        """Make the GPU's context current."""
        self.cuda.call("cuCtxSetCurrent", self._context)

    def write(self, data: bytes) -> None:
        """Copy bytes to the GPU."""
        self.use()
        size = ctypes.c_size_t(len(data))
        self.cuda.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), data, size)
        self.cuda.call("cuCtxSynchronize")

    def read(self) -> bytes:
        """Copy the bytes from the GPU."""
        self.use()
        data = ctypes.create_string_buffer(self.size)
        size, address = ctypes.c_size_t(self.size), ctypes.c_uint64(self.address)
        self.cuda.call("cuMemcpyDtoH_v2", data, address, size)
        return data.raw


class HostBytes(bytearray):
    """Memory of this process, with the methods of GpuBytes."""

    def write(self, data: bytes) -> None:
        """Store bytes."""
        self[:] = data

    def read(self) -> bytes:
        """Return the bytes."""
        return bytes(self)


def _pattern(size: int, seed: int) -> bytes:
    """Return bytes that differ from those of another seed at almost each offset."""
    return random.Random(seed).randbytes(size)


def _require_equal(found: bytes, wanted: bytes, what: str) -> None:
    if found == wanted:
        return
    wrong = [at for at, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b]
    count = f"{len(wrong)} of {len(wanted)} bytes"
    raise ExperimentFailed(
        f"{what} reported success, and {count} are wrong, from byte {wrong[0]} on"
    )


def cuda_context(gpu: str) -> str:
    """Make a context on a GPU, and write and read back 64 KiB of its memory."""
    memory, data = GpuBytes(Cuda(), int(gpu), _MOVED), _pattern(_MOVED, 1)
    memory.write(data)
    _require_equal(memory.read(), data, "the copy to the GPU and back")
    return "made; the data came back right"


def gpu_copy(first: str, second: str) -> str:
    """Map the memory of each of two GPUs for the other, copy 1 MiB there, and compare."""
    cuda = Cuda()
    a, b = (GpuBytes(cuda, int(gpu), _COPIED) for gpu in (first, second))
    direct = [_copy(cuda, a, b, 1), _copy(cuda, b, a, 2)]
    if not all(direct):
        raise ExperimentFailed(
            "CUDA gives no peer access; a copy through host memory came back right"
        )
    return "direct in both directions; the data are right"


def _copy(cuda: Cuda, source: GpuBytes, target: GpuBytes, seed: int) -> bool:
    """Copy from GPU to GPU and compare; return whether CUDA gives peer access."""
    data, can = _pattern(_COPIED, seed), ctypes.c_int()
    source.write(data)
    target.write(_pattern(_COPIED, seed + 2))
    cuda.call("cuDeviceCanAccessPeer", ctypes.byref(can), source.number, target.number)
    source.use()
    to, from_ = ctypes.c_uint64(target.address), ctypes.c_uint64(source.address)
    size = ctypes.c_size_t(_COPIED)
    if can.value:
        cuda.call("cuCtxEnablePeerAccess", target.context, 0)
        cuda.call("cuMemcpyDtoDAsync_v2", to, from_, size, None)
    else:
        cuda.call("cuMemcpyPeerAsync", to, target.context, from_, source.context, size, None)
    cuda.call("cuCtxSynchronize")
    _require_equal(target.read(), data, f"the copy from GPU {source.number} to GPU {target.number}")
    return bool(can.value)


def register_dmabuf(device: str, gpu: str) -> str:
    """Register 1 MiB of GPU memory with an RDMA device, as a dma-buf."""
    cuda = Cuda()
    memory, fd = GpuBytes(cuda, int(gpu), _COPIED), ctypes.c_int(-1)
    address, size = ctypes.c_uint64(memory.address), ctypes.c_size_t(_COPIED)
    flags = ctypes.c_uint64(0)
    asked = (ctypes.byref(fd), address, size, _DMA_BUF_FD, flags)
    cuda.call("cuMemGetHandleForAddressRange", *asked)
    with _protection_domain(device) as (verbs, domain):
        u64 = ctypes.c_uint64
        types = (ctypes.c_void_p, u64, ctypes.c_size_t, u64, ctypes.c_int, ctypes.c_int)
        arguments = (domain, 0, _COPIED, memory.address, fd.value, _ACCESS)
        _register(verbs, "ibv_reg_dmabuf_mr", types, arguments)
    return "registered"


def register_peermem(device: str, gpu: str) -> str:
    """Register 1 MiB of GPU memory with an RDMA device, by its address."""
    memory = GpuBytes(Cuda(), int(gpu), _COPIED)
    with _protection_domain(device) as (verbs, domain):
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        _register(verbs, "ibv_reg_mr", types, (domain, memory.address, _COPIED, _ACCESS))
    return "registered"


@contextlib.contextmanager
def _protection_domain(device: str) -> Iterator[tuple[Any, int]]:
    verbs, why = load_library("libibverbs.so.1")
    if verbs is None:
        raise ExperimentNotRun(why)
    with protection_domain(verbs, device) as (domain, why):
        if not domain:
            raise ExperimentFailed(why)
        yield verbs, domain


def _register(verbs: Any, name: str, types: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    """Register memory and deregister it again."""
    function = getattr(verbs, name, None)
    if function is None:
        raise ExperimentFailed(f"this libibverbs has no {name}")
    function.restype, function.argtypes = ctypes.c_void_p, types
    ctypes.set_errno(0)
    region = function(*arguments)
    if not region:
        raise ExperimentFailed(f"{name}: {os.strerror(ctypes.get_errno())}")
    verbs.ibv_dereg_mr(ctypes.c_void_p(region))


def rdma_loopback(device: str, source: str, target: str) -> str:
    """Write and read 64 KiB through an RDMA device, from one memory of this process to another."""
    return _through("verbs", device, (source, target), _MOVED)


@contextlib.contextmanager
def _judged() -> Iterator[None]:
    """Raise dgkit's errors as results of the experiment."""
    from ...errors import DeviceUnavailable, DgkitError

    try:
        yield
    except DeviceUnavailable as why:
        raise ExperimentNotRun(why.words) from None
    except DgkitError as why:
        raise ExperimentFailed(str(why)) from None


def rdma_peer(address: str, keys: str, place: str, provider: str) -> str:
    """Write and read 64 KiB of another machine's memory through its agent's session."""
    from ...session.connect import connect

    data = _pattern(_MOVED, 1)
    with _judged(), connect(address, keys=keys or None, provider=provider, timeout=10) as session:
        region = session.empty(_MOVED, on=place)
        how = session.write(region, data)
        _require_equal(session.read(region, _MOVED), data, "the transfer")
        region.close()
    return f"the data are right both ways, by {how.provider}"


def doca_dma(provider: str, target: str) -> str:
    """Write and read 4 KiB by DOCA DMA."""
    return _through(provider, None, (_HOST, target), _SMALL)


def _through(provider: str, rdma: str | None, places: tuple[str, str], size: int) -> str:
    """Move bytes from the first memory to the second and back through a device of dgkit."""
    from ...dma.device import Device

    first, second = (_memory(place, size) for place in places)
    with _judged(), Device(provider, rdma=rdma) as device, device.queue() as queue:
        local = device.register(first)
        exported = device.register(second)
        remote = device.import_region(exported.export())
        how = exported.registration
        for seed, move in ((1, queue.write), (2, queue.read)):
            from_, to = (first, second) if seed == 1 else (second, first)
            from_.write(_pattern(size, seed))
            move(local, remote, size=size).wait(timeout=5)
            _require_equal(to.read(), _pattern(size, seed), "the transfer")
    return f"the data are right both ways{f' ({how})' if how else ''}"


def _memory(place: str, size: int) -> Any:
    return HostBytes(size) if place == _HOST else GpuBytes(Cuda(), int(place), size)


QUERIES: dict[str, Callable[..., str]] = {
    "cuda-context": cuda_context,
    "gpu-copy": gpu_copy,
    "register-dmabuf": register_dmabuf,
    "register-peermem": register_peermem,
    "rdma-loopback": rdma_loopback,
    "rdma-peer": rdma_peer,
    "doca-dma": doca_dma,
}


def main(words: list[str]) -> None:
    """Run an experiment and print its answer, then end without the libraries' own clean-up."""
    query, *arguments = words
    try:
        done, said = True, QUERIES[query](*arguments)
    except ExperimentFailed as why:
        done, said = False, str(why)
    except ExperimentNotRun as why:
        done, said = None, str(why)
    print(json.dumps({"done": done, "said": said}), flush=True)  # noqa: T201 (a program)
    sys.stderr.flush()
    os._exit(0)
