"""What an address on a GPU belongs to, and how another process can import that block."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..types import GpuSpan
from . import cuda
from .gpu_info import uuid_of
from .host import Fd

__all__ = ["find", "whole_blocks"]

# What dgkit allocated: the block's address, and the bytes that were asked for. The rest of such a
# block is padding, so that an importer of the whole block gets nothing else.
whole_blocks: dict[int, int] = {}

_ALLOCATE = "allocate it by dgkit.empty(on='gpu')"
_GRANULE = 2 << 20
_MANAGED = "managed memory moves between CPU and GPU, and CUDA shares none of it: " + _ALLOCATE
_HOST = "it is host memory that the GPU reaches, and not of a GPU: allocate it by on='pinned'"
_POOL = (
    "it is from a stream-ordered pool (cudaMallocAsync), of which CUDA shares nothing that a "
    f"process outside can map: {_ALLOCATE}, or let CuPy use its own pool "
    "(cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)), PyTorch its native one"
)
_NO_FD = (
    "it is CUDA virtual memory that was made without a POSIX fd to share it by: "
    f"{_ALLOCATE}; PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
)
_PARTS = (
    "it lies in several physical allocations that are mapped side by side: "
    f"{_ALLOCATE}; PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
)
_NO_IPC = f"CUDA has no IPC handle for it: {_ALLOCATE}"


def find(address: int, size: int, share_block: bool) -> tuple[GpuSpan, Fd | None, bool]:
    """The span of `size` bytes at `address`, the fd that it names, and whether it is managed.

    ValueError if the address is none of CUDA's in this process, or the bytes leave its block.
    """
    number = _gpu_of(address)
    if number < 0:
        raise ValueError(f"{address:#x} is no address of CUDA memory in this process")
    managed = bool(_ask("IS_MANAGED", address))
    with cuda.current(number), contextlib.ExitStack() as held:
        handle = None
        if not managed and not int(_ask("MEMPOOL_HANDLE", address) or 0):
            code, handle = cuda.ask("cuMemRetainAllocationHandle", address)
            handle = None if code else handle
        if handle is not None:
            held.callback(cuda.ask, "cuMemRelease", handle)
        base, block = _block(address, size, is_virtual=handle is not None)
        _check_end(address, size, base + block, is_virtual=handle is not None)
        how, fd = _export(address, size, base, block, handle, share_block)
        if address + size > base + block:  # then what was reserved for all of them counts
            base, block = _block(address, size, is_virtual=False)
    span = GpuSpan(
        address=address, size=size, gpu=number, uuid=uuid_of(number),
        block=block, offset=address - base, **how,
    )  # fmt: skip
    return span, fd, managed


def _gpu_of(address: int) -> int:
    """The number of the GPU that the address belongs to; -1 if CUDA knows none for it."""
    gpu = _ask("DEVICE_ORDINAL", address)
    return -1 if gpu is None else int(gpu)


def _check_end(address: int, size: int, end: int, *, is_virtual: bool) -> None:
    """ValueError if the bytes go on behind the allocation's end, and nothing is mapped there."""
    last = address + size - 1
    if last >= end and not (is_virtual and _gpu_of(last) >= 0):
        raise ValueError(
            f"{size} bytes at {address:#x} leave the allocation that they begin in, which ends "
            f"{end - address} bytes from there"
        )


def _ask(name: str, address: int) -> Any:
    """`CU_POINTER_ATTRIBUTE_<name>`; None if the driver, or cuda.bindings, does not tell."""
    driver = cuda.driver()
    attribute = getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    with contextlib.suppress(TypeError):  # an attribute that these bindings do not know
        code, value = cuda.ask("cuPointerGetAttribute", attribute, driver.CUdeviceptr(address))
        return None if code else value
    return None


def _block(address: int, size: int, *, is_virtual: bool) -> tuple[int, int]:
    """Where the allocation begins, and its bytes. Of virtual memory: what one handle maps."""
    found: tuple[Any, Any] = (None, None)
    if is_virtual:
        found = _ask("MAPPING_BASE_ADDR", address), _ask("MAPPING_SIZE", address)
        if not found[0] or not found[1]:  # bindings before 13.5; this, too, is one handle's range
            code, mapped = cuda.ask("cuMemGetAddressRange", address)
            found = (None, None) if code else mapped
    if not found[0] or not found[1]:
        found = _ask("RANGE_START_ADDR", address), _ask("RANGE_SIZE", address)
    return (int(found[0]), int(found[1])) if found[0] and found[1] else (address, size)


def _export(
    address: int, size: int, base: int, block: int, handle: Any, share_block: bool
) -> tuple[dict[str, Any], Fd | None]:
    """The part of a GpuSpan that says how to import the block, and the fd in it."""
    why = _never(address)
    if not why and address + size > base + block:
        why = _PARTS
    if not why and not (share_block or (address == base and whole_blocks.get(base) == size)):
        why = _shares_more(size, block, is_virtual=handle is not None)
    if why:
        return {"kind": "none", "why": why}, None
    return (_by_ipc(base), None) if handle is None else _by_fd(handle)


def _never(address: int) -> str:
    """Why memory of this kind is never shared; "" if it can be."""
    if _ask("IS_MANAGED", address):
        return _MANAGED
    if int(_ask("MEMORY_TYPE", address) or 0) == 1:  # CU_MEMORYTYPE_HOST
        return _HOST
    return _POOL if int(_ask("MEMPOOL_HANDLE", address) or 0) else ""


def _shares_more(size: int, block: int, *, is_virtual: bool) -> str:
    """What an importer would get besides the bytes, in words; "" if nothing.

    That cudaMalloc cuts its blocks from some of 2 MiB, which IPC shares whole, is in the CUDA C++
    Programming Guide, "Interprocess Communication".
    """
    if size < block:
        return (
            f"the array has {size} bytes and lies in a block of {block}, and CUDA shares whole "
            "blocks: an importer could reach what else is in it. If it may, register it with "
            f"share_block=True; else {_ALLOCATE}"
        )
    if not is_virtual and block % _GRANULE:
        return (
            f"the array has {size} bytes, and CUDA shares whole blocks of {_GRANULE} bytes: what "
            "cudaMalloc put beside it could be reached by an importer. If it may, register it with "
            f"share_block=True; else {_ALLOCATE}"
        )
    return ""


def _by_fd(handle: Any) -> tuple[dict[str, Any], Fd | None]:
    posix = cuda.driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    code, number = cuda.ask("cuMemExportToShareableHandle", handle, posix, 0)
    if code:
        return {"kind": "none", "why": _NO_FD}, None
    fd = Fd(int(number))
    os.set_inheritable(fd.number, False)
    return {"kind": "vmm", "fd": fd.number}, fd


def _by_ipc(base: int) -> dict[str, Any]:
    code, handle = cuda.ask("cuIpcGetMemHandle", base)
    if code:
        name = cuda.driver().CUresult(code).name
        return {"kind": "none", "why": f"{_NO_IPC} (cuIpcGetMemHandle answers {name})"}
    return {"kind": "ipc", "handle": cuda.raw(handle, 64)}
