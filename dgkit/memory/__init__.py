# SPDX-License-Identifier: Apache-2.0
"""Memory on the host and on GPUs. Independent of DMA; `dma` registers it.

Modules:
    allocate: `dgkit.empty` and its argument `on` ("host", "gpu", "auto", ...).
    shape: Shapes and dtypes without NumPy.
    wrap: `dgkit.wrap`, and a user's host memory.
    host: Host memory (sealed memfd).
    bar: Memory of a testbed's host guest in the PCI BAR of its DPU guest.
    meminfo: Memory available on this machine.
    gpu: GPU memory allocated by dgkit, and host memory that GPUs can access.
    wrap_gpu: A user's GPU memory.
    gpu_base: Base of all GPU memory.
    vmm: CUDA virtual memory that other processes can import.
    cuda_pointer: Allocation that a GPU address belongs to, and how to share it.
    dmabuf: dma-buf of GPU memory, or its address for nvidia-peermem.
    cpu_mapping: GPU memory mapped for the CPU, and GDRCopy's library.
    gpu_info: GPUs of this process and their capabilities.
    gpu_load: Load of each GPU of this machine.
    libcuda: Calls to the CUDA driver, made by no other module. Result codes as exceptions.

The modules for GPU memory are loaded on first use.
"""

from .allocate import empty
from .host import HostMemory
from .wrap import ForeignMemory, is_gpu_array, wrap

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from ..errors import DeviceUnavailable
    from .gpu_info import GpuInfo

__all__ = ["ForeignMemory", "HostMemory", "empty", "gpu_error", "gpus", "is_gpu_array"]
__all__ += ["why_no_gpu", "wrap"]


def gpus() -> "list[GpuInfo]":
    """Return every GPU that this process may use; empty if none (`why_no_gpu` explains it)."""
    from .gpu_info import gpus as found

    return found()


def gpu_error() -> "DeviceUnavailable | None":
    """Return the error that `on="gpu"` raises; None if it works."""
    from .gpu_info import gpu_error as found

    return found()


def why_no_gpu() -> str:
    """Return why `on="gpu"` fails and what to do; "" if it works."""
    from .gpu_info import why_no_gpu as why

    return why()
