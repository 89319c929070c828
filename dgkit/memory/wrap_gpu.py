# SPDX-License-Identifier: Apache-2.0
"""A user's GPU memory: CuPy, PyTorch, JAX, Numba, any object that exposes its address.

The address comes from `__cuda_array_interface__` (versions 2 and 3), else from DLPack, which CuPy
reads.
"""

from __future__ import annotations

import ctypes
import errno
import math
from typing import Any

from ..errors import Unsupported
from ..unique import Closable
from . import libcuda
from .cuda_pointer import find_span
from .gpu_base import ALL_STREAMS, GpuBase
from .shape import as_shape

_VERSIONED = b"dltensor_versioned"


class ForeignGpuMemory(GpuBase, Closable):
    """Bytes of a user's array on a GPU, in place. Created by `dgkit.wrap`.

    Another process can import only the whole allocation that contains the array. If the allocation
    has other contents (CuPy's pool cuts arrays from large blocks), that requires
    `share_block=True`. `gpu.kind` says how the memory is imported, or `gpu.why` why it cannot be.
    """

    def __init__(self, obj: Any, *, share_block: bool = False, name: str | None = None) -> None:
        self._span = None
        self.kind = type(obj).__name__
        self.share_block, self.name = share_block, name
        self._object: Any = obj
        # The interface may be a property; PyTorch's raises errors that hasattr does not catch.
        readonly = False
        if not hasattr(obj, "__cuda_array_interface__"):
            readonly = _dlpack_readonly(obj)
            self._object = _from_dlpack(obj)
        interface = self._object.__cuda_array_interface__
        address, self.size = _bytes_of(interface, self.kind)
        self.readonly = readonly or bool(interface["data"][1])
        self._span, self._fd, self.managed = find_span(address, self.size, share_block)

    @property
    def keep(self) -> object:
        """Object to hold while the address, the fd or the handle is in use."""
        return (self._object, self._fd)

    @property
    def array(self) -> Any:
        """The object as a `cupy.ndarray`, in place."""
        cupy = libcuda.require_cupy()
        _ = self.gpu  # raises ClosedError
        return cupy.asarray(self._object)

    def close(self) -> None:
        """Release the object; regions over it keep it alive. Idempotent."""
        self._span = self._object = self._fd = None

    def _producer(self) -> int:
        """Return the stream that the interface names now, or all streams if none (PyTorch).

        In version 3 None means that no synchronization is needed; synchronizing anyway is safe.
        """
        stream = self._object.__cuda_array_interface__.get("stream")
        return ALL_STREAMS if stream is None else int(stream)

    def _about(self) -> list[tuple[str, object]]:
        return [("Of", self.kind)]

    def __repr__(self) -> str:
        place = "" if self._span is None else f" on {self.place}"
        return f"<dgkit.ForeignGpuMemory {self.kind} of {self.size} bytes{place}>"


def _from_dlpack(obj: Any) -> Any:
    return libcuda.require_cupy().from_dlpack(obj)


def _dlpack_readonly(obj: Any) -> bool:
    """Return whether an object's DLPack says that its bytes are read-only, which CuPy ignores.

    The flag is in DLManagedTensorVersioned, since DLPack 1.0: after the version, the manager's
    context and the deleter, of 8 bytes each (dlpack.h).
    """
    try:
        capsule = obj.__dlpack__(stream=-1, max_version=(1, 0))  # -1: without synchronization
    except (TypeError, BufferError):
        return False  # older than 1.0
    api = ctypes.pythonapi
    if not api.PyCapsule_IsValid(ctypes.py_object(capsule), _VERSIONED):
        return False
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    tensor = api.PyCapsule_GetPointer(ctypes.py_object(capsule), _VERSIONED)
    return bool(ctypes.c_uint64.from_address(tensor + 24).value & 1)


def _bytes_of(interface: Any, kind: str) -> tuple[int, int]:
    """Return address and size in bytes.

    Raises:
        ValueError: The array has 0 bytes.
        Unsupported: The bytes are not contiguous.
    """
    shape = as_shape(interface["shape"])
    item = int(interface["typestr"][2:])
    size = math.prod(shape) * item
    if size == 0:
        raise ValueError(f"{kind} has 0 bytes; the minimum is 1")
    if interface.get("mask") is not None:
        raise Unsupported(errno.EOPNOTSUPP, f"{kind} is masked: register its data and its mask")
    strides = interface.get("strides")
    if strides is not None and not _is_contiguous(shape, tuple(strides), item):
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{kind} is not contiguous: register the whole array that it is a view of, "
            "and use write_2d or read_2d with its strides",
        )
    return int(interface["data"][0]), size


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """Return whether the items are contiguous, in C's order or in Fortran's."""
    for order in (1, -1):
        step = item
        for length, stride in list(zip(shape, strides, strict=True))[::-order]:
            if length != 1 and stride != step:
                break
            step *= length
        else:
            return True
    return False
