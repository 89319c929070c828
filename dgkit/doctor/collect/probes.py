# SPDX-License-Identifier: Apache-2.0
"""Library probes, run in a child process so that a crash or a hang of a library is contained.

`python probes.py QUERY...` prints one JSON document. The queries are `cuda`, `context`,
`rdma-dmabuf DEVICE` and `libraries`. The file imports nothing of dgkit and runs in an isolated
Python. Only `context` creates CUDA contexts, which it destroys again. No query registers memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# CUdevice_attribute: NVIDIA CUDA driver API, "Data types used by CUDA driver"; 152 since CUDA 13.3.
_ATTRIBUTES = {
    "INTEGRATED": 18,
    "COMPUTE_MODE": 20,
    "PAGEABLE_MEMORY_ACCESS": 88,
    "CONCURRENT_MANAGED_ACCESS": 89,
    "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 100,
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 102,
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 103,
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED": 110,
    "GPU_DIRECT_RDMA_SUPPORTED": 116,
    "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS": 117,
    "GPU_DIRECT_RDMA_WRITES_ORDERING": 118,
    "DMA_BUF_SUPPORTED": 124,
    "HANDLE_TYPE_FABRIC_SUPPORTED": 128,
    "HOST_NUMA_ID": 134,
    "HOST_ALLOC_DMA_BUF_SUPPORTED": 146,
    "DMA_BUF_MMAP_SUPPORTED": 152,
}
_CAPABILITY = (75, 76)  # COMPUTE_CAPABILITY_MAJOR and _MINOR

_DOCA = ("common", "dma", "comch", "rdma", "eth", "flow", "verbs", "gpunetio")
LIBRARIES = (
    *("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libcudart.so.12", "libcudart.so"),
    *("libgdrapi.so.2", "libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1"),
    *(f"libdoca_{part}.so{end}" for part in _DOCA for end in (".3", ".2", "")),
)
_LIBRARIES_S = 3.0  # time limit for loading all libraries
_CONTEXT_S = 4.0  # time limit for the contexts on all GPUs, which are created in parallel
_MAX_GPUS = 64
# Directory of DOCA's packages, which dgkit searches after the loader's directories.
_DOCA_FOLDER = f"/opt/mellanox/doca/lib/{os.uname().machine}-linux-gnu"


def main(words: list[str]) -> int:
    """Print the answer to a query; return 2 if the query is unknown."""
    query, *names = words or [""]
    if query not in _QUERIES or len(names) != _QUERIES[query][1]:
        print(f"unknown query: {' '.join(words)}", file=sys.stderr)  # noqa: T201
        return 2
    answer = _QUERIES[query][0](*names)
    print(json.dumps(answer, indent=1))  # noqa: T201 (a program)
    return 0


def load_library(name: str) -> tuple[Any, str]:
    """Load a library; return None and the loader's error if that fails."""
    try:
        return ctypes.CDLL(name, use_errno=True), ""
    except OSError as error:
        return None, str(error)


def _mapped(name: str) -> str:
    """Return the file of a loaded library: `libcuda.so.580.95.05` for `libcuda.so.1`."""
    stem = name.split(".so")[0]
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith((f"{stem}.so", f"{stem}-")):
            return f"/{path.removesuffix(' (deleted)')}"
    return ""


def cuda() -> dict[str, Any]:
    """Query the CUDA driver: version, result of cuInit, and the attributes of each GPU."""
    answer: dict[str, Any] = {"library": "", "why": "", "init": None, "driver": None, "devices": []}
    driver, answer["why"] = load_library("libcuda.so.1")
    if driver is None:
        return answer
    answer["library"] = _mapped("libcuda.so.1")
    code = driver.cuInit(0)
    answer["init"] = {"code": code, "name": error_name(driver, code)}
    number = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(number)) == 0:
        answer["driver"] = number.value
    if code == 0 and driver.cuDeviceGetCount(ctypes.byref(number)) == 0:
        answer["devices"] = [_gpu_attributes(driver, ordinal) for ordinal in range(number.value)]
    return answer


def context() -> dict[str, Any]:
    """Create and destroy a CUDA context on each GPU, each in a child process.

    CUDA must not be used before a fork, so a child process counts the GPUs, too.
    """
    until = time.monotonic() + _CONTEXT_S
    first = _result(*_fork(_count), until)
    count = min(int(first.get("count", "0")), _MAX_GPUS)
    children = [_fork(lambda ordinal=at: _create(ordinal)) for at in range(count)]  # type: ignore[misc]
    found = [_result(*child, until) for child in children]
    return {"why": first.get("why", ""), "devices": [_context_answer(result) for result in found]}


def _context_answer(answer: dict[str, str]) -> dict[str, Any]:
    code = int(answer["code"]) if "code" in answer else None
    parts = {name: answer.get(name, "") for name in ("address", "name", "why")}
    return {**parts, "code": code}


def _count() -> dict[str, str]:
    """Return the number of GPUs, or the reason why it is unknown."""
    driver, why = load_library("libcuda.so.1")
    if driver is None:
        return {"why": why}
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return (
        {"why": error_name(driver, code) or f"error {code}"}
        if code
        else {"count": str(count.value)}
    )


def _create(ordinal: int) -> dict[str, str]:
    """Create a context on a GPU, and destroy it; return the result of the first call that fails."""
    driver, why = load_library("libcuda.so.1")
    if driver is None:
        return {"why": why}
    device, text = ctypes.c_int(), ctypes.create_string_buffer(256)
    code = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), ordinal)
    if not code and not driver.cuDeviceGetPCIBusId(text, len(text), device):
        address = text.value.decode("ascii", "replace").lower()
    else:
        address = ""
    handle = ctypes.c_void_p()
    if not code:
        code = driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)
    if not code:
        driver.cuDevicePrimaryCtxRelease(device)
    return {"address": address, "code": str(code), "name": error_name(driver, code)}


def error_name(driver: Any, code: int) -> str:
    """Return the name of a CUDA result code; "" if the driver does not know it."""
    text = ctypes.c_char_p()
    found = driver.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
    return found.decode("ascii", "replace") if found else ""


def _gpu_attributes(driver: Any, ordinal: int) -> dict[str, Any]:
    device, text, uuid = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)

    def query(name: str) -> str:
        failed = getattr(driver, name)(text, len(text), device)
        return "" if failed else text.value.decode("utf-8", "replace")

    def attribute(number: int) -> int | None:
        value = ctypes.c_int()
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return None if failed else value.value

    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
    digits = "" if get_uuid(uuid, device) else bytes(uuid).hex()
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return {
        "ordinal": ordinal,
        "address": query("cuDeviceGetPCIBusId").lower(),
        "name": query("cuDeviceGetName"),
        "uuid": f"GPU-{'-'.join(groups)}" if digits else "",
        "capability": [attribute(number) for number in _CAPABILITY],
        "attributes": {name: attribute(number) for name, number in _ATTRIBUTES.items()},
    }


def rdma_dmabuf(device: str) -> dict[str, Any]:
    """Test whether the driver of an RDMA device can register dma-bufs.

    It tries to register fd -1: a driver without dma-buf support returns EOPNOTSUPP or
    EPROTONOSUPPORT, a driver with support returns EBADF. NCCL does the same test
    (src/transport/net_ib.cc).
    """
    answer: dict[str, Any] = {"device": device, "library": "", "version": "", "symbol": False}
    answer.update(takes=None, errno="", why="")
    verbs, answer["why"] = load_library("libibverbs.so.1")
    if verbs is None:
        return answer
    answer["library"] = _mapped("libibverbs.so.1")
    answer["version"] = answer["library"].partition(".so.")[2]
    answer["symbol"] = hasattr(verbs, "ibv_reg_dmabuf_mr")
    if not answer["symbol"]:
        answer.update(takes=False, why="this libibverbs has no ibv_reg_dmabuf_mr")
        return answer
    with protection_domain(verbs, device) as (domain, why):
        answer["why"] = why
        if domain:
            answer["takes"], answer["errno"] = _try_registration(verbs, domain)
    return answer


@contextlib.contextmanager
def protection_domain(verbs: Any, name: str) -> Iterator[tuple[int | None, str]]:
    """Allocate a protection domain of a device; yield None and the reason if that fails."""
    for function in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd"):
        getattr(verbs, function).restype = ctypes.c_void_p
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    count = ctypes.c_int()
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    devices = (ctypes.c_void_p * count.value).from_address(listed) if listed else ()
    known = {verbs.ibv_get_device_name(ctypes.c_void_p(entry)): entry for entry in devices}
    context = domain = None
    if found := known.get(os.fsencode(name)):
        context = verbs.ibv_open_device(ctypes.c_void_p(found))
        why = f"ibv_open_device: {os.strerror(ctypes.get_errno())}"
        if context and not (domain := verbs.ibv_alloc_pd(ctypes.c_void_p(context))):
            why = f"ibv_alloc_pd: {os.strerror(ctypes.get_errno())}"
    else:
        why = f"libibverbs does not list {name}"
    try:
        yield domain, "" if domain else why
    finally:
        if domain:
            verbs.ibv_dealloc_pd(ctypes.c_void_p(domain))
        if context:
            verbs.ibv_close_device(ctypes.c_void_p(context))
        if listed:
            verbs.ibv_free_device_list(ctypes.c_void_p(listed))


def _try_registration(verbs: Any, domain: int) -> tuple[bool | None, str]:
    """Register fd -1 as a dma-buf; return whether dma-bufs are supported, and the errno's name."""
    register = verbs.ibv_reg_dmabuf_mr
    register.restype = ctypes.c_void_p
    u64 = ctypes.c_uint64
    register.argtypes = (ctypes.c_void_p, u64, ctypes.c_size_t, u64, ctypes.c_int, ctypes.c_int)
    ctypes.set_errno(0)
    region = register(domain, 0, 0, 0, -1, 0)
    code = ctypes.get_errno()
    if region:  # not expected for fd -1
        verbs.ibv_dereg_mr(ctypes.c_void_p(region))
    name = errno.errorcode.get(code, str(code))
    if code in (errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.ENOSYS):
        return False, name
    return (True if code == errno.EBADF else None), name


def libraries() -> dict[str, Any]:
    """Find the file of each shared library that the loader can load.

    Each library is loaded in a child process of its own, so that a crash or a hang of it does not
    affect the others.
    """
    children = {name: _fork(lambda name=name: _find_library(name)) for name in LIBRARIES}  # type: ignore[misc]
    until = time.monotonic() + _LIBRARIES_S
    return {name: _result(*child, until) for name, child in children.items()}


def _find_library(name: str) -> dict[str, str]:
    library, why = load_library(name)
    if library is None and name.startswith("libdoca"):
        library, _ = load_library(f"{_DOCA_FOLDER}/{name}")
    if library is None:
        return {"path": "", "why": why}
    return {"path": _mapped(name) or name, "why": ""}


def _fork(work: Callable[[], dict[str, str]]) -> tuple[int, int]:
    """Call a function in a child process; return its PID and the read end of its result pipe."""
    end, start = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the library prints
            os.write(start, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(start)
    return child, end


def _result(child: int, end: int, until: float) -> dict[str, str]:
    """Return the result of a child process, killed at `until`, or the reason why there is none."""
    ready, _, _ = select.select([end], [], [], max(0.0, until - time.monotonic()))
    output = os.read(end, 1 << 16) if ready else b""
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.close(end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if output:
        return dict(json.loads(output))
    why = f"loading it ended with signal {-status}" if ready else "loading it timed out"
    return {"path": "", "why": why}


_QUERIES: dict[str, tuple[Callable[..., dict[str, Any]], int]] = {
    "cuda": (cuda, 0),
    "context": (context, 0),
    "rdma-dmabuf": (rdma_dmabuf, 1),
    "libraries": (libraries, 0),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
