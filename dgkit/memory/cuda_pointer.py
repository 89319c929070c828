# SPDX-License-Identifier: Apache-2.0
"""Allocation that a GPU address belongs to, and how another process can import it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..files import Fd
from ..types import GpuSpan
from . import libcuda
from .gpu_info import uuid_of

# Address and requested bytes of dgkit's own allocations. The rest of such an allocation is padding,
# so an importer of the whole allocation gets no other data.
allocated_sizes: dict[int, int] = {}

_ALLOCATE = "allocate it by dgkit.empty(on='gpu')"
_SHARE = "dgkit.wrap(array, share_block=True)"
_GRANULE = 2 << 20
_MANAGED = "managed memory moves between CPU and GPU, so CUDA cannot share it: " + _ALLOCATE
_HOST = "it is host memory that the GPU accesses, not GPU memory: allocate it by on='pinned'"
_POOL = (
    "it is from a stream-ordered pool (cudaMallocAsync), which CUDA does not share in a form that "
    f"another process can map: {_ALLOCATE}, or let CuPy use its own pool "
    "(cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)), PyTorch its native one"
)
_NO_FD = (
    "it is CUDA virtual memory that was created without a POSIX fd to share it by: "
    f"{_ALLOCATE}; PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
)
_PARTS = (
    "it spans several physical allocations that are mapped side by side: "
    f"{_ALLOCATE}; PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
)
_NO_IPC = f"CUDA has no IPC handle for it: {_ALLOCATE}"


def find_span(address: int, size: int, share_block: bool) -> tuple[GpuSpan, Fd | None, bool]:
    """Return the span of `size` bytes at `address`, its fd, and whether the memory is managed.

    Args:
        address: Address of the first byte.
        size: Bytes.
        share_block: An importer may access all of the allocation.

    Raises:
        ValueError: The address is not CUDA's in this process, or the bytes exceed the allocation.
    """
    number = _gpu_of(address)
    if number < 0:
        raise ValueError(f"{address:#x} is not an address of CUDA memory in this process")
    managed = bool(_attribute("IS_MANAGED", address))
    with libcuda.primary_context(number), contextlib.ExitStack() as stack:
        handle = None
        if not managed and not int(_attribute("MEMPOOL_HANDLE", address) or 0):
            code, handle = libcuda.try_call("cuMemRetainAllocationHandle", address)
            handle = None if code else handle
        if handle is not None:
            stack.callback(libcuda.try_call, "cuMemRelease", handle)
        base, block = _block(address, size, is_virtual=handle is not None)
        _check_end(address, size, base + block, is_virtual=handle is not None)
        how, fd = _export(address, size, base, block, handle, share_block)
        if address + size > base + block:  # several allocations: take their common reservation
            base, block = _block(address, size, is_virtual=False)
    span = GpuSpan(
        address=address, size=size, gpu=number, uuid=uuid_of(number),
        block=block, offset=address - base, **how,
    )  # fmt: skip
    return span, fd, managed


def _gpu_of(address: int) -> int:
    """Return the index of the GPU that the address belongs to; -1 if CUDA does not know it."""
    gpu = _attribute("DEVICE_ORDINAL", address)
    return -1 if gpu is None else int(gpu)


def _check_end(address: int, size: int, end: int, *, is_virtual: bool) -> None:
    """Raise ValueError if the bytes exceed the allocation and nothing is mapped behind it."""
    last = address + size - 1
    if last >= end and not (is_virtual and _gpu_of(last) >= 0):
        raise ValueError(
            f"{size} bytes at {address:#x} exceed their allocation, which ends "
            f"{end - address} bytes after that address"
        )


def _attribute(name: str, address: int) -> Any:
    """Return `CU_POINTER_ATTRIBUTE_<name>`; None if the driver or cuda.bindings lacks it."""
    driver = libcuda.driver()
    attribute = getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    with contextlib.suppress(TypeError):  # an attribute that these bindings do not know
        code, value = libcuda.try_call(
            "cuPointerGetAttribute", attribute, driver.CUdeviceptr(address)
        )
        return None if code else value
    return None


def _block(address: int, size: int, *, is_virtual: bool) -> tuple[int, int]:
    """Return base address and bytes of the allocation; for virtual memory, what one handle maps."""
    found: tuple[Any, Any] = (None, None)
    if is_virtual:
        found = _attribute("MAPPING_BASE_ADDR", address), _attribute("MAPPING_SIZE", address)
        if not found[0] or not found[1]:  # bindings before 13.5; also the range of one handle
            code, mapped = libcuda.try_call("cuMemGetAddressRange", address)
            found = (None, None) if code else mapped
    if not found[0] or not found[1]:
        found = _attribute("RANGE_START_ADDR", address), _attribute("RANGE_SIZE", address)
    return (int(found[0]), int(found[1])) if found[0] and found[1] else (address, size)


def _export(
    address: int, size: int, base: int, block: int, handle: Any, share_block: bool
) -> tuple[dict[str, Any], Fd | None]:
    """Return the fields of a GpuSpan that say how to import the allocation, and its fd."""
    why = _unshareable(address)
    if not why and address + size > base + block:
        why = _PARTS
    if not why and not (share_block or (address == base and allocated_sizes.get(base) == size)):
        why = _exposed_too(size, block, is_virtual=handle is not None)
    if why:
        return {"kind": "none", "why": why}, None
    return (_by_ipc(base), None) if handle is None else _by_fd(handle)


def _unshareable(address: int) -> str:
    """Return why this kind of memory cannot be shared; "" if it can."""
    if _attribute("IS_MANAGED", address):
        return _MANAGED
    if int(_attribute("MEMORY_TYPE", address) or 0) == 1:  # CU_MEMORYTYPE_HOST
        return _HOST
    return _POOL if int(_attribute("MEMPOOL_HANDLE", address) or 0) else ""


def _exposed_too(size: int, block: int, *, is_virtual: bool) -> str:
    """Return what an importer would get besides the bytes; "" if nothing.

    cudaMalloc cuts its allocations from blocks of 2 MiB, which IPC shares whole (CUDA C++
    Programming Guide, "Interprocess Communication").
    """
    if size < block:
        return (
            f"the array has {size} bytes in a block of {block}, and CUDA shares whole blocks: an "
            "importer could access the rest of the block. To allow it, register "
            f"{_SHARE}; else {_ALLOCATE}"
        )
    if not is_virtual and block % _GRANULE:
        return (
            f"the array has {size} bytes, and CUDA shares whole blocks of {_GRANULE} bytes: an "
            "importer could access other memory of cudaMalloc in the same block. To allow it, "
            f"register {_SHARE}; else {_ALLOCATE}"
        )
    return ""


def _by_fd(handle: Any) -> tuple[dict[str, Any], Fd | None]:
    posix = libcuda.driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    code, number = libcuda.try_call("cuMemExportToShareableHandle", handle, posix, 0)
    if code:
        return {"kind": "none", "why": _NO_FD}, None
    fd = Fd(int, number)
    os.set_inheritable(fd.number, False)
    return {"kind": "vmm", "fd": fd.number}, fd


def _by_ipc(base: int) -> dict[str, Any]:
    code, handle = libcuda.try_call("cuIpcGetMemHandle", base)
    if code:
        name = libcuda.driver().CUresult(code).name
        return {"kind": "none", "why": f"{_NO_IPC} (cuIpcGetMemHandle returned {name})"}
    return {"kind": "ipc", "handle": libcuda.struct_bytes(handle, 64)}
