# SPDX-License-Identifier: Apache-2.0
"""`dgkit.wrap`: use a user's memory in place: a buffer on the host, or an array on a GPU."""

from __future__ import annotations

from ..buffers import check_no_grad, flat_view
from .host import HostBase

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

    from .wrap_gpu import ForeignGpuMemory

_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged (dlpack.h, DLDeviceType)
_HOST = (bytes, bytearray, memoryview)


class ForeignMemory(HostBase):
    """Bytes of a user's object, in place. Created by `dgkit.wrap`, or by registering the object.

    Other processes access the bytes through this process: one of its threads copies for them, or
    they copy themselves if the system lets them open this process (`share_process` requests that).
    """

    fd = -1
    readonly_export = False
    keep: object = None

    def __init__(self, obj: Any, *, share_process: bool = False, name: str | None = None) -> None:
        self._buffer = view = flat_view(obj)
        self.size = view.nbytes
        self.share_process = share_process
        self.name = name
        self.kind = type(obj).__name__
        self.may_fault: bool | None = None  # whether a file backs the bytes; set by `dma`

    @property
    def readonly(self) -> bool:
        """True if the object forbids writing."""
        return self.buffer.readonly

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The bytes as a flat NumPy array of u1. Imports NumPy."""
        import numpy as np

        return np.frombuffer(self.buffer, dtype="u1")

    def __repr__(self) -> str:
        return f"<dgkit.ForeignMemory {self.kind} of {self.size} bytes>"


def is_gpu_array(obj: Any) -> bool:
    """Return whether an object's bytes are on a GPU: CuPy, PyTorch, JAX, Numba and others.

    Imports no GPU library.

    Raises:
        Unsupported: It is a PyTorch tensor that requires grad.
    """
    if isinstance(obj, _HOST):
        return False
    check_no_grad(obj)  # raises before PyTorch's own error in the next line
    if hasattr(obj, "__cuda_array_interface__"):
        return True
    device = getattr(obj, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in _ON_GPU


def wrap(
    obj: Any, *, share_process: bool = False, share_block: bool = False, name: str | None = None
) -> ForeignMemory | ForeignGpuMemory:
    """Use the bytes of a contiguous object, on the host or on a GPU, in place.

    Args:
        obj: Object with the buffer protocol, `__cuda_array_interface__` or DLPack.
        share_process: Other processes may open this one to copy the host bytes themselves.
        share_block: Other processes may import the whole allocation that holds an array on a GPU.
        name: Name shown in the memory's repr and cards.

    Raises:
        TypeError: The object exposes no bytes.
        ValueError: It has 0 bytes.
        Unsupported: Its bytes are not contiguous, or it is a PyTorch tensor that requires grad.
    """
    if is_gpu_array(obj):
        from .wrap_gpu import ForeignGpuMemory

        return ForeignGpuMemory(obj, share_block=share_block, name=name)
    return ForeignMemory(obj, share_process=share_process, name=name)
