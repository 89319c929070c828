# SPDX-License-Identifier: Apache-2.0
"""Queues that GPU kernels post to, compilation of such kernels, and the emulated GPU.

`dgkit.Device.gpu_queue` opens such a queue; native/gpu_initiated/dgkit_device.cuh declares the
functions that a kernel calls. The emulated GPU runs the same source on the CPU.

Modules:
    emulate: Kernels of the emulated GPU.
    compiler: Compiles a source for the emulated GPU; finds the folder of the device header.
    launch: Runs one grid in a child process, and reports where its threads were stopped.
    kernel_arguments: Kernel arguments of the emulated GPU, and the memory that they point to.
    gpu_module: Kernels for a real GPU, compiled by CuPy; support for launches by other libraries.
    mlx5: Decoder of work queue entries and completion queue entries.
    queue_report: Report of a queue pair of the software NIC.
    kernel_benchmark: Kernels that measure their own operations.
    numba_functions: Functions for Numba kernels. Import this module explicitly; it needs Numba.
"""

from __future__ import annotations

from .compiler import include_dir
from .emulate import EmulatedKernel, EmulatedModule, emulate
from .gpu_module import GpuKernel, GpuModule, launching, raw_module
from .queue_report import QueueReport, queue_report

__all__ = ["EmulatedKernel", "EmulatedModule", "GpuKernel", "GpuModule", "emulate", "include_dir"]
__all__ += ["QueueReport", "launching", "queue_report", "raw_module"]
