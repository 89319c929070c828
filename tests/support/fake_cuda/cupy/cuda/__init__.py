# SPDX-License-Identifier: Apache-2.0
"""`cupy.cuda` of the test double: devices, streams and memory, by the fake driver's libcuda."""

from cupy.cuda import runtime
from cupy.cuda._driver import Device, call, use
from cupy.cuda._memory import (
    POOL,
    MemoryPointer,
    MemoryPool,
    UnownedMemory,
    alloc,
    malloc_async,
    malloc_managed,
    set_allocator,
)
from cupy.cuda._stream import Stream, get_current_stream

__all__ = ["POOL", "Device", "MemoryPointer", "MemoryPool", "Stream", "UnownedMemory", "alloc"]
__all__ += ["call", "get_current_stream", "malloc_async", "malloc_managed", "runtime"]
__all__ += ["set_allocator", "use"]
