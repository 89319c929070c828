"""The GPUs of this process and what each can do: `dgkit info` shows it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DeviceUnavailable, NativeError
from . import cuda

__all__ = ["GpuInfo", "gpu_error", "gpus", "kernel_modules", "uuid_of", "uuid_text", "why_no_gpu"]

_VERSION = Path("/proc/driver/nvidia/version")
_PCI = Path("/sys/bus/pci/devices")

# Bits of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUGPUDirectRDMAWritesOrdering.
_ORDERINGS = {0: "none", 100: "owner", 200: "all devices"}


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """One GPU. A figure or an attribute that nothing here tells is None; sizes are bytes.

    `flavour` is that of the loaded kernel modules: "open", "closed" or "unknown", and then
    `flavour_why` says why; `bar1_why` does the same for BAR1, through which other devices reach
    the GPU's memory. `writes_ordering`: who sees the writes of another device in their order
    without a flush: "none", "owner" (this GPU) or "all devices".
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
    """What `on="gpu"` raises here; None if it works."""
    try:
        cuda.ready()
    except DeviceUnavailable as error:
        return error
    return None


def why_no_gpu() -> str:
    """Why `on="gpu"` fails here, and what to do; "" if it works."""
    error = gpu_error()
    return "" if error is None else str(error.strerror)


def gpus() -> list[GpuInfo]:
    """Every GPU that this process may use; none where `why_no_gpu` says why."""
    try:
        found = cuda.count()
    except NativeError:
        return []
    return [_info(index) for index in range(found)]


def _info(index: int) -> GpuInfo:
    device = cuda.call("cuDeviceGet", index)
    pci = _text(cuda.call("cuDeviceGetPCIBusId", 32, device)).lower()
    bar1_total, bar1_free, free, bar1_why = _sizes(pci)
    driver, flavour, flavour_why = kernel_modules()
    version = int(cuda.call("cuDriverGetVersion"))
    return GpuInfo(
        index=index,
        name=_text(cuda.call("cuDeviceGetName", 256, device)),
        uuid=uuid_text(uuid_of(index)),
        pci=pci,
        total=int(cuda.call("cuDeviceTotalMem", device)),
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
        writes_ordering=_ordering(cuda.attribute(index, "GPU_DIRECT_RDMA_WRITES_ORDERING")),
    )


def uuid_of(index: int) -> bytes:
    """The 16 bytes that name a GPU on every machine; a MIG instance has its own."""
    module = cuda.driver()
    # CUDA 12's bindings have both, and there the first names the whole GPU.
    second = hasattr(module, "cuDeviceGetUuid_v2")
    function = "cuDeviceGetUuid_v2" if second else "cuDeviceGetUuid"
    return bytes(cuda.call(function, cuda.call("cuDeviceGet", index)).bytes)[:16]


def uuid_text(uuid: bytes) -> str:
    """As nvidia-smi writes it."""
    parts = (uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
    return "GPU-" + "-".join(part.hex() for part in parts)


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")


def _flag(index: int, name: str) -> bool | None:
    value = cuda.attribute(index, name)
    return None if value is None else bool(value)


def _ordering(value: int | None) -> str | None:
    return None if value is None else _ORDERINGS.get(value, str(value))


def _free(index: int) -> int | None:
    """By the driver, which makes a context for it; NVML (`_sizes`) needs none."""
    with contextlib.suppress(NativeError), cuda.current(index):
        return int(cuda.call("cuMemGetInfo")[0])
    return None


def kernel_modules() -> tuple[str, str, str]:
    """Version and flavour of the loaded modules, and why either is unknown.

    The first line of the file names them: "NVRM version: NVIDIA UNIX Open Kernel Module for ...".
    """
    try:
        line = _VERSION.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return "unknown", "unknown", f"{_VERSION} cannot be read"
    words = [word for word in line.split() if word[0].isdigit() and "." in word]
    return words[0] if words else "unknown", "open" if "Open" in line else "closed", ""


def _sizes(pci: str) -> tuple[int | None, int | None, int | None, str]:
    """BAR1 total and free, free memory, and why BAR1's are unknown. NVML first, then sysfs."""
    try:
        nvml = _nvml()
        handle = nvml.device_get_handle_by_pci_bus_id_v2(pci)
        free = int(nvml.device_get_memory_info_v2(handle).free)
        bar1 = nvml.device_get_bar1_memory_info(handle)
        return int(bar1.bar1_total), int(bar1.bar1_free), free, ""
    except Exception as error:  # NVML's own have no common base, and only figures are asked for
        total = _resource1(pci)
        said = f"NVML does not tell ({error})"
        if total is None:
            return None, None, None, f"{said} and {_PCI / pci / 'resource'} cannot be read"
        return total, None, None, f"{said}; its size is from sysfs"


def _nvml() -> Any:
    from cuda.bindings import nvml

    nvml.init_v2()
    return nvml


def _resource1(pci: str) -> int | None:
    """The size of BAR1: of the second region in use in the PCI device's `resource`.

    A line has a region's first byte, last byte and flags; BAR0 takes two where it is a 64-bit one.
    """
    try:
        lines = (_PCI / pci / "resource").read_text(encoding="ascii").splitlines()[:6]
        ends = [[int(word, 16) for word in line.split()[:2]] for line in lines]
        sizes = [last - first + 1 for first, last in ends if last > first]
    except (OSError, ValueError):
        return None
    return sizes[1] if len(sizes) > 1 else None
