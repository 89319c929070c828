# SPDX-License-Identifier: Apache-2.0
"""DLPack of the test double: the struct of dlpack.h, in a capsule."""

import ctypes

import numpy as np

from cupy import cuda
from cupy._array import ndarray


class _Tensor(ctypes.Structure):
    """DLManagedTensor, whose first part is DLTensor."""


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Tensor))
_Tensor._fields_ = [
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("manager", ctypes.c_void_p),
    ("deleter", _DELETER),
]
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_USED = b"used_dltensor"
_lent = {}  # what is lent keeps its memory until it is given back


@_DELETER
def _give_back(tensor):
    _lent.pop(ctypes.addressof(tensor.contents), None)


def to_dlpack(array):
    """A capsule that the importer renames. One that is never imported is kept forever."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
    code, bits = _CODES[array.dtype.kind], array.itemsize * 8
    fields = (array.data.ptr, 2, array.device.id, array.ndim, code, bits, 1, shape, strides)
    tensor = _Tensor(*fields, 0, None, _give_back)
    _lent[ctypes.addressof(tensor)] = (tensor, shape, strides, array)
    return _new(ctypes.addressof(tensor), b"dltensor", None)


class _Borrowed:
    """Gives the tensor back when nothing uses it any more."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __del__(self):
        if self.tensor.deleter:
            self.tensor.deleter(ctypes.pointer(self.tensor))


def from_dlpack(obj):
    """Return an array over the GPU memory of an object with DLPack."""
    device_type, device_id = obj.__dlpack_device__()
    if device_type != 2:
        raise ValueError(f"DLPack device type {device_type} is not a CUDA one")
    capsule = obj.__dlpack__(stream=cuda.get_current_stream(device_id).ptr or 1)
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    _rename(capsule, _USED)
    kinds = {code: kind for kind, code in _CODES.items()}
    dtype = np.dtype(f"{kinds[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[: tensor.ndim])
    steps = tensor.strides[: tensor.ndim] if tensor.strides else None
    strides = None if steps is None else tuple(step * dtype.itemsize for step in steps)
    span = sum((n - 1) * abs(step) for n, step in zip(shape, strides or (), strict=False))
    size = span + dtype.itemsize if strides else int(np.prod(shape)) * dtype.itemsize
    start = (tensor.data or 0) + tensor.byte_offset
    memory = cuda.UnownedMemory(start, size, _Borrowed(tensor), device_id)
    return ndarray(shape, dtype, cuda.MemoryPointer(memory, 0), strides)
