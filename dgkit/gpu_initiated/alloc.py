"""Memory of the three types of DOCA GPUNetIO: for kernels only, or for kernels and the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Unsupported
from ..memory import empty, why_no_gpu
from ..validate import whole

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from typing import Any

TYPES = ("gpu", "gpu_cpu", "cpu_gpu")  # DOCA_GPU_MEM_TYPE_GPU, _GPU_CPU, _CPU_GPU
_ON_GPU, _MAPPED = "GPU memory", "GPU memory, mapped for the CPU"
_PINNED, _HOST = "pinned host memory", "host memory"


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """Memory that kernels access. Created by `alloc`; a context manager.

    Attributes:
        type: "gpu", "gpu_cpu" or "cpu_gpu".
        memory: Memory to pass to a kernel as an argument, and to register with a device.
        cpu: The same bytes for the CPU; None for the type "gpu" on a GPU.
        where: Where the bytes are: "GPU memory", "GPU memory, mapped for the CPU", "pinned host
            memory" or "host memory".
        why: Why the bytes are not in GPU memory although the type requests it; "" otherwise.
    """

    type: str
    memory: Any
    cpu: memoryview | None
    where: str
    why: str

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self.memory.size)

    def close(self) -> None:
        """Free the memory. Idempotent."""
        self.memory.close()

    def __enter__(self) -> KernelMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        why = f"; {self.why}" if self.why else ""
        return f"<dgkit.KernelMemory {self.type}, {self.size:,} bytes, {self.where}{why}>"


def alloc(size: int, type: str = "gpu") -> KernelMemory:  # `type` is GPUNetIO's name
    """Allocate zeroed memory for kernels. The result says where the bytes are.

    A GPU queue of the provider soft moves host memory only: use the type "cpu_gpu", or check
    `where`.

    Args:
        size: Bytes.
        type: "gpu": GPU memory. "gpu_cpu": GPU memory that is mapped for the CPU by a dma-buf or by
            GDRCopy, or pinned host memory if neither works. "cpu_gpu": pinned host memory. Without
            a GPU, all three types are host memory, for the emulated GPU.

    Raises:
        TypeError: The size is no whole number.
        ValueError: The type is unknown, or the size is not 1 or more.
        OutOfMemory: Too little memory is free.
    """
    if type not in TYPES:
        raise ValueError(f"type is {type!r}; it must be one of: {', '.join(TYPES)}")
    size = whole("size", size, 1)
    if missing := why_no_gpu():
        host = empty(size)
        return KernelMemory(type, host, host.buffer, _HOST, f"emulated GPU: {missing}")
    if type == "cpu_gpu":
        return _pinned(size, type, "")
    on_gpu = empty(size, on="gpu")
    if type == "gpu":
        return KernelMemory(type, on_gpu, None, _ON_GPU, "")
    try:
        return KernelMemory(type, on_gpu, on_gpu.cpu_view(), _MAPPED, "")
    except Unsupported as error:
        on_gpu.close()
        return _pinned(size, type, str(error.strerror))
    except BaseException:
        on_gpu.close()
        raise


def _pinned(size: int, type: str, why: str) -> KernelMemory:
    memory = empty(size, on="pinned")
    return KernelMemory(type, memory, memory.buffer, _PINNED, why)
