# SPDX-License-Identifier: Apache-2.0
"""GPUs of this process and their capabilities, as shown by `dgkit info`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DeviceUnavailable, NativeError
from . import libcuda

_VERSION = Path("/proc/driver/nvidia/version")
_PCI = Path("/sys/bus/pci/devices")

# Bits of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUGPUDirectRDMAWritesOrdering.
_ORDERINGS = {0: "none", 100: "owner", 200: "all devices"}


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """One GPU and its capabilities. Sizes are bytes; a value that cannot be determined is None.

    Attributes:
        index: Index in this process.
        name: Product name.
        uuid: As nvidia-smi prints it.
        pci: PCI address.
        total: Memory.
        free: Free memory.
        driver: Version of the loaded NVIDIA kernel modules.
        cuda: CUDA version that the driver supports.
        flavour: Flavour of the loaded kernel modules: "open", "closed" or "unknown".
        flavour_why: Why the flavour is unknown; else "".
        bar1_total: BAR1, through which other devices access the GPU's memory.
        bar1_free: Free part of BAR1.
        bar1_why: Why figures of BAR1 are unknown; else "".
        dma_buf: Memory can be exported as a dma-buf.
        dma_buf_mmap: The CPU can map such a dma-buf.
        gpu_direct_rdma: Supports GPUDirect RDMA.
        gpu_direct_rdma_vmm: Supports it for CUDA virtual memory.
        posix_fd: Virtual memory can be shared by a POSIX fd.
        host_alloc_dma_buf: Pinned host memory can be exported as a dma-buf.
        writes_ordering: Observers that see another device's writes in order without a flush:
            "none", "owner" (this GPU) or "all devices".
    """

    index: int
    name: str
    uuid: str
    pci: str
    total: int
    free: int | None
    driver: str
    cuda: str
    flavour: str
    flavour_why: str
    bar1_total: int | None
    bar1_free: int | None
    bar1_why: str
    dma_buf: bool | None
    dma_buf_mmap: bool | None
    gpu_direct_rdma: bool | None
    gpu_direct_rdma_vmm: bool | None
    posix_fd: bool | None
    host_alloc_dma_buf: bool | None
    writes_ordering: str | None


def gpu_error() -> DeviceUnavailable | None:
    """Return the error that `on="gpu"` raises; None if it works."""
    try:
        libcuda.require_cupy()
    except DeviceUnavailable as error:
        return error
    return None


def why_no_gpu() -> str:
    """Return why `on="gpu"` fails and what to do; "" if it works."""
    error = gpu_error()
    return "" if error is None else str(error.strerror)


def gpus() -> list[GpuInfo]:
    """Return every GPU that this process may use; empty if none (`why_no_gpu` explains it)."""
    try:
        found = libcuda.count()
    except NativeError:
        return []
    return [_read_gpu(index) for index in range(found)]


def _read_gpu(index: int) -> GpuInfo:
    device = libcuda.call("cuDeviceGet", index)
    pci = _text(libcuda.call("cuDeviceGetPCIBusId", 32, device)).lower()
    bar1_total, bar1_free, free, bar1_why = _memory(pci)
    driver, flavour, flavour_why = kernel_modules()
    version = int(libcuda.call("cuDriverGetVersion"))
    return GpuInfo(
        index=index,
        name=_text(libcuda.call("cuDeviceGetName", 256, device)),
        uuid=uuid_text(uuid_of(index)),
        pci=pci,
        total=int(libcuda.call("cuDeviceTotalMem", device)),
        free=_free(index) if free is None else free,
        driver=driver,
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        flavour=flavour,
        flavour_why=flavour_why,
        bar1_total=bar1_total,
        bar1_free=bar1_free,
        bar1_why=bar1_why,
        dma_buf=_flag(index, "DMA_BUF_SUPPORTED"),
        dma_buf_mmap=_flag(index, "DMA_BUF_MMAP_SUPPORTED"),
        gpu_direct_rdma=_flag(index, "GPU_DIRECT_RDMA_SUPPORTED"),
        gpu_direct_rdma_vmm=_flag(index, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED"),
        posix_fd=_flag(index, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"),
        host_alloc_dma_buf=_flag(index, "HOST_ALLOC_DMA_BUF_SUPPORTED"),
        writes_ordering=_ordering(libcuda.attribute(index, "GPU_DIRECT_RDMA_WRITES_ORDERING")),
    )


def uuid_of(index: int) -> bytes:
    """Return the 16 bytes that identify a GPU; a MIG instance has its own."""
    module = libcuda.driver()
    # CUDA 12's bindings have both functions; their cuDeviceGetUuid returns the whole GPU's UUID.
    second = hasattr(module, "cuDeviceGetUuid_v2")
    function = "cuDeviceGetUuid_v2" if second else "cuDeviceGetUuid"
    return bytes(libcuda.call(function, libcuda.call("cuDeviceGet", index)).bytes)[:16]


def uuid_text(uuid: bytes) -> str:
    """Return a UUID as nvidia-smi prints it."""
    parts = (uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
    return "GPU-" + "-".join(part.hex() for part in parts)


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")


def _flag(index: int, name: str) -> bool | None:
    value = libcuda.attribute(index, name)
    return None if value is None else bool(value)


def _ordering(value: int | None) -> str | None:
    return None if value is None else _ORDERINGS.get(value, str(value))


def _free(index: int) -> int | None:
    """Return free memory from the driver, which creates a context; NVML (`_memory`) does not."""
    with contextlib.suppress(NativeError), libcuda.primary_context(index):
        return int(libcuda.call("cuMemGetInfo")[0])
    return None


def kernel_modules() -> tuple[str, str, str]:
    """Return version and flavour of the loaded kernel modules, and why either is unknown.

    Source: the first line of /proc/driver/nvidia/version, "NVRM version: NVIDIA UNIX Open Kernel
    Module for ...".
    """
    try:
        line = _VERSION.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return "unknown", "unknown", f"{_VERSION} cannot be read"
    words = [word for word in line.split() if word[0].isdigit() and "." in word]
    return words[0] if words else "unknown", "open" if "Open" in line else "closed", ""


def _memory(pci: str) -> tuple[int | None, int | None, int | None, str]:
    """Return BAR1 total and free, free memory, and why BAR1's are unknown, by NVML, else sysfs."""
    try:
        nvml = open_nvml()
        handle = nvml.device_get_handle_by_pci_bus_id_v2(pci)
        free = int(nvml.device_get_memory_info_v2(handle).free)
        bar1 = nvml.device_get_bar1_memory_info(handle)
        return int(bar1.bar1_total), int(bar1.bar1_free), free, ""
    except Exception as error:  # NVML's errors have no common base, and the figures are optional
        total = _bar1_size(pci)
        why = f"NVML fails ({error})"
        if total is None:
            return None, None, None, f"{why} and {_PCI / pci / 'resource'} cannot be read"
        return total, None, None, f"{why}; the size is from sysfs"


def open_nvml() -> Any:
    """Return cuda.bindings.nvml, initialized; may raise an error of any class."""
    from cuda.bindings import nvml

    nvml.init_v2()
    return nvml


def _bar1_size(pci: str) -> int | None:
    """Return the size of BAR1, the second region in use in the PCI device's `resource`.

    Each line has a region's first byte, last byte and flags; a 64-bit BAR0 takes two lines.
    """
    try:
        lines = (_PCI / pci / "resource").read_text(encoding="ascii").splitlines()[:6]
        ends = [[int(word, 16) for word in line.split()[:2]] for line in lines]
        sizes = [last - first + 1 for first, last in ends if last > first]
    except (OSError, ValueError):
        return None
    return sizes[1] if len(sizes) > 1 else None
