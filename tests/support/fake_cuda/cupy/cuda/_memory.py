# SPDX-License-Identifier: Apache-2.0
"""Memory of the test double: a pool that cuts arrays from blocks of cuMemAlloc, as CuPy's does."""

import ctypes
import threading

from cupy.cuda._driver import Device, call, use

_ROUND = 512


class UnownedMemory:
    """Memory owned by `owner`, which it holds."""

    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = use() if device_id < 0 else device_id
        self.device = Device(self.device_id)


class _Owned(UnownedMemory):
    def __init__(self, size, function="cuMemAlloc_v2", *args):
        found = ctypes.c_uint64()
        device = use()
        call(function, ctypes.byref(found), size, *args)
        super().__init__(found.value, size, None, device)

    def __del__(self):
        if not hasattr(self, "ptr"):
            return
        try:
            with Device(self.device_id):
                call("cuMemFree_v2", self.ptr)
        except RuntimeError:  # a context that is lost, or not this process's
            pass


class MemoryPointer:
    """An address in memory, which it keeps."""

    def __init__(self, mem, offset):
        self.mem, self.offset = mem, offset
        self.ptr, self.device = mem.ptr + offset, mem.device
        self.device_id = mem.device_id
        self.left = mem.size - offset

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.offset + offset)

    def __int__(self):
        return self.ptr


class _Chunk(UnownedMemory):
    """A part of a block; it goes back to the pool."""

    def __init__(self, pool, block, start, size, room):
        super().__init__(block.ptr + start, size, block, block.device_id)
        self._pool, self._start, self._room = pool, start, room

    def __del__(self):
        self._pool.give(self._owner, self._start, self._room)


class MemoryPool:
    """Rounds sizes up to 512 bytes, and cuts what fits into a free part of a block from it."""

    def __init__(self):
        self._lock = threading.RLock()
        self._free = []  # (block, start, room)
        self._blocks = []

    def malloc(self, size):
        """A MemoryPointer."""
        room, device = -(-size // _ROUND) * _ROUND, use()
        with self._lock:
            fits = [part for part in self._free if part[0].device_id == device and part[2] >= room]
            if not fits:
                block, start, there = _Owned(room), 0, room
                self._blocks.append(block)
            else:
                block, start, there = part = min(fits, key=lambda part: part[2])
                self._free.remove(part)
            if there > room:
                self._free.append((block, start + room, there - room))
            return MemoryPointer(_Chunk(self, block, start, size, room), 0)

    def give(self, block, start, room):
        """Takes a part back, and joins it with its free neighbours."""
        with self._lock:
            for part in [part for part in self._free if part[0] is block]:
                if part[1] + part[2] == start or start + room == part[1]:
                    self._free.remove(part)
                    start, room = min(start, part[1]), room + part[2]
            self._free.append((block, start, room))

    def free_all_blocks(self):
        with self._lock:
            whole = [part for part in self._free if part[2] == part[0].size]
            for part in whole:
                self._free.remove(part)
                self._blocks.remove(part[0])

    def total_bytes(self):
        return sum(block.size for block in self._blocks)


POOL = MemoryPool()
_allocator = POOL.malloc


def alloc(size):
    """Memory from the current allocator, by default the pool."""
    if size:
        return _allocator(size)
    return MemoryPointer(UnownedMemory(0, 0, None), 0)


def set_allocator(allocator=None):
    global _allocator
    _allocator = allocator or _direct


def _direct(size):
    return MemoryPointer(_Owned(size), 0)


def malloc_managed(size):
    return MemoryPointer(_Owned(size, "cuMemAllocManaged", 1), 0)


def malloc_async(size):
    return MemoryPointer(_Owned(size, "cuMemAllocAsync", 0), 0)
