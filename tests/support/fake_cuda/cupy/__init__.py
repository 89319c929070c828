# SPDX-License-Identifier: Apache-2.0
"""A test double of CuPy: arrays in the memory of the fake driver's GPUs, computed by NumPy.

It has what dgkit and its tests use. It is never shipped, and nothing is measured with it.
"""

import numpy as np

from cupy import cuda
from cupy._array import ndarray
from cupy._dlpack import from_dlpack

__all__ = ["arange", "array", "array_equal", "asarray", "asnumpy", "cuda", "empty", "from_dlpack"]
__all__ += ["full", "get_default_memory_pool", "ndarray", "ones", "zeros"]

__version__ = "14.2.0"


def get_default_memory_pool():
    return cuda.POOL


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def full(shape, value, dtype=None):
    made = ndarray(shape, np.asarray(value).dtype if dtype is None else dtype)
    made.fill(value)
    return made


def zeros(shape, dtype=float):
    return full(shape, 0, dtype)


def ones(shape, dtype=float):
    return full(shape, 1, dtype)


def array(obj, dtype=None):
    source = np.asarray(obj.get() if isinstance(obj, ndarray) else obj, dtype)
    made = ndarray(source.shape, source.dtype)
    made.set(source)
    return made


def arange(*args, dtype=None):
    return array(np.arange(*args, dtype=dtype))


def asarray(obj, dtype=None):
    """Return a GPU array in place, or a copy of a host array on the GPU."""
    shown = getattr(obj, "__cuda_array_interface__", None)
    if isinstance(obj, ndarray) or shown is None:
        return obj if isinstance(obj, ndarray) else array(obj, dtype)
    size = int(np.prod(shown["shape"])) * np.dtype(shown["typestr"]).itemsize
    memory = cuda.UnownedMemory(shown["data"][0], size, obj)
    pointer = cuda.MemoryPointer(memory, 0)
    return ndarray(shown["shape"], shown["typestr"], pointer, shown.get("strides"))


def asnumpy(obj):
    return obj.get() if isinstance(obj, ndarray) else np.asarray(obj)


def array_equal(a, b):
    return array(np.array_equal(asnumpy(a), asnumpy(b)))
