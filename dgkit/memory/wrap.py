"""`dgkit.wrap`: what the user already has, on the host or on a GPU, used in place."""

from __future__ import annotations

from .wrap_host import ForeignMemory

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .wrap_gpu import ForeignGpuMemory

__all__ = ["is_gpu_array", "wrap"]

_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged (dlpack.h, DLDeviceType)
_HOST = (bytes, bytearray, memoryview)


def is_gpu_array(obj: Any) -> bool:
    """Whether an object says that its bytes lie on a GPU: CuPy, PyTorch, JAX, Numba and others.

    It loads no GPU library.
    """
    if isinstance(obj, _HOST):
        return False
    if hasattr(obj, "__cuda_array_interface__"):
        return True
    device = getattr(obj, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in _ON_GPU


def wrap(
    obj: Any, *, share_process: bool = False, share_block: bool = False, name: str | None = None
) -> ForeignMemory | ForeignGpuMemory:
    """Uses the bytes of a contiguous object in place: of the buffer protocol, or on a GPU.

    `share_process`: other processes may open this one to copy host bytes themselves. `share_block`:
    they may import the whole block that an array on a GPU lies in. TypeError without bytes to
    show, ValueError for none, Unsupported if they are not contiguous.
    """
    if is_gpu_array(obj):
        from .wrap_gpu import ForeignGpuMemory

        return ForeignGpuMemory(obj, share_block=share_block, name=name)
    return ForeignMemory(obj, share_process=share_process, name=name)
