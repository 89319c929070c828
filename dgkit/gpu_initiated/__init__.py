"""Queues that a GPU's kernels post to: compiling kernels, and the emulated GPU.

The queue is `dgkit.Device.gpu_queue`; what a kernel calls is native/device/dgkit_device.cuh. The
emulated GPU runs the same source on the CPU.

Modules:
    alloc: Memory by GPUNetIO's three types.
    emulate: Kernels of the emulated GPU.
    compiler: Compiles a source for the emulated GPU.
    launch: Runs one grid in a child process, and reports where its threads were stopped.
    kernel_arguments: Kernel arguments, and the memory that they point to.
    gpu_module: Kernels for a real GPU, compiled by CuPy; launches by other libraries.
    measure: Kernels that measure their own operations.
    session_latency: Latency of a session's transfers that kernels start.
    numba_functions: What a kernel of Numba calls; imported by its user, as it needs Numba.
    headers: Folder of the device header.
"""

from __future__ import annotations

from .alloc import KernelMemory, alloc
from .emulate import EmulatedKernel, EmulatedModule, emulate
from .gpu_module import GpuKernel, GpuModule, launching, raw_module
from .headers import include_dir

__all__ = ["EmulatedKernel", "EmulatedModule", "GpuKernel", "GpuModule", "emulate", "include_dir"]
__all__ += ["KernelMemory", "alloc", "launching", "raw_module"]
