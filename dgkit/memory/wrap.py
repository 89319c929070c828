"""`dgkit.wrap`: use a user's memory, on the host or on a GPU, in place."""

from __future__ import annotations

from ..buffers import check_no_grad
from .wrap_host import ForeignMemory

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .wrap_gpu import ForeignGpuMemory

__all__ = ["is_gpu_array", "wrap"]

_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged (dlpack.h, DLDeviceType)
_HOST = (bytes, bytearray, memoryview)


def is_gpu_array(obj: Any) -> bool:
    """Return whether an object's bytes are on a GPU: CuPy, PyTorch, JAX, Numba and others.

    Imports no GPU library.

    Raises:
        Unsupported: It is a PyTorch tensor that requires grad.
    """
    if isinstance(obj, _HOST):
        return False
    check_no_grad(obj)  # before PyTorch's own error, which the next line would pass on
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
        name: Shown in its repr and cards.

    Raises:
        TypeError: The object exposes no bytes.
        ValueError: It has 0 bytes.
        Unsupported: Its bytes are not contiguous, or it is a PyTorch tensor that requires grad.
    """
    if is_gpu_array(obj):
        from .wrap_gpu import ForeignGpuMemory

        return ForeignGpuMemory(obj, share_block=share_block, name=name)
    return ForeignMemory(obj, share_process=share_process, name=name)
