"""Memory: bytes and where they live. Knows nothing of DMA; `dma` registers what this makes.

`allocate` and `wrapping` are the doors. `host`, `foreign` and `pinned` are memory of the host, and
`on_host` what they share. `gpu` (over `virtual`) and `foreign_gpu` (over `kinds`) are memory of a
GPU, and `on_gpu` what both have, `dmabuf` and `reach` among it. Only `cuda` calls the driver; none
of these is loaded before GPU memory is asked for.
"""

from .allocate import empty
from .host import HostMemory
from .wrap import is_gpu_array, wrap
from .wrap_host import ForeignMemory

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from ..errors import DeviceUnavailable
    from .gpu_info import GpuInfo

__all__ = ["ForeignMemory", "HostMemory", "empty", "gpu_error", "gpus", "is_gpu_array"]
__all__ += ["why_no_gpu", "wrap"]


def gpus() -> "list[GpuInfo]":
    """Every GPU that this process may use; none where `why_no_gpu` says why."""
    from .gpu_info import gpus as found

    return found()


def gpu_error() -> "DeviceUnavailable | None":
    """What `on="gpu"` raises here; None if it works."""
    from .gpu_info import gpu_error as found

    return found()


def why_no_gpu() -> str:
    """Why `on="gpu"` fails here, and what to do; "" if it works."""
    from .gpu_info import why_no_gpu as why

    return why()
