"""Moving bytes: devices, regions, queues. The Pythonic side of native/dgkit.h.

`_ffi` is the only module that knows the C core; `device`, `region`, `queue`, `transfer`,
`prepared` and `completion` are its objects; `described` is what it is told of memory; `records`
has the layout of batches; `fault` the rules of the provider `fault`; `measure` the C measuring
loops; `aio` is loaded by the first await that must wait.
"""

from __future__ import annotations

from .completion import Completion
from .device import Device
from .queue import Queue
from .region import Region, RemoteRegion
from .transfer import Transfer

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .caps import Caps as Caps
    from .dtypes import WC_DTYPE as WC_DTYPE
    from .dtypes import WR_DTYPE as WR_DTYPE
    from .fault import FaultRule as FaultRule
    from .system import ProviderInfo as ProviderInfo
    from .system import cpus as cpus
    from .system import now_ns as now_ns
    from .system import providers as providers
    from .system import runtime_dir as runtime_dir

# What a first transfer does not need is loaded when it is asked for.
_LATER = {
    "Caps": "caps",
    "FaultRule": "fault",
    "ProviderInfo": "system",
    "WC_DTYPE": "dtypes",
    "WR_DTYPE": "dtypes",
    "cpus": "system",
    "now_ns": "system",
    "providers": "system",
    "runtime_dir": "system",
}

__all__ = [
    "WC_DTYPE",
    "WR_DTYPE",
    "Caps",
    "Completion",
    "Device",
    "FaultRule",
    "ProviderInfo",
    "Queue",
    "Region",
    "RemoteRegion",
    "Transfer",
    "cpus",
    "now_ns",
    "providers",
    "runtime_dir",
]


def __getattr__(name: str) -> Any:
    """Loads a name at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value
