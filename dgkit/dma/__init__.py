# SPDX-License-Identifier: Apache-2.0
"""Devices, regions, queues and transfers: the Python side of native/dgkit.h.

Modules:
    _ffi: Access to the C core; imports `_native` and turns its error codes into exceptions.
    device: Open provider.
    context: State that a device shares with its regions and queues.
    region: Memory regions, registered or imported.
    gpu_queue: Queue that a GPU's kernels post to.
    gpu_queue_proxy: Thread that serves the GPU queues of one device.
    nccl_server: Threads that copy for dgkit's NCCL plugin.
    nic: Software NIC, to whose queue pairs kernels post in mlx5's format.
    remote_ring: Rings whose kernels and whose proxy are in different processes.
    queue: Queue that posts reads, writes and atomic operations.
    queue_pair: Queue pair that is connected by hand.
    prepared: Batches, and operations that are checked once and run often.
    transfer: Posted operations and the wait for them.
    completion: Result of an operation.
    work_request: Fields of `dg_wr` from Python values.
    dtypes: `dg_wr` and `dg_wc` as NumPy dtypes, and pointers of such arrays.
    bytes_memory: Memory behind Python's buffers: addresses, copies without the GIL, pages.
    fault: Rules of the provider `fault`.
    measure: Latency and rate, measured in the C core.
    provider_info: Which providers can be opened, and the capabilities of an open one.
    system: CPUs and the clock.
    aio: Waiting in an asyncio event loop; imported by the first await that must wait.
"""

from __future__ import annotations

from .completion import Completion
from .device import Device
from .gpu_queue import GpuQueue, KernelQueue
from .queue import Queue
from .region import Region, RemoteRegion
from .transfer import Transfer

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .dtypes import WC_DTYPE as WC_DTYPE
    from .dtypes import WR_DTYPE as WR_DTYPE
    from .fault import FaultRule as FaultRule
    from .nic import Nic as Nic
    from .nic import NicKey as NicKey
    from .nic import VerbsQueue as VerbsQueue
    from .provider_info import Caps as Caps
    from .provider_info import DeviceStats as DeviceStats
    from .provider_info import ProviderInfo as ProviderInfo
    from .provider_info import providers as providers
    from .queue_pair import QueuePair as QueuePair
    from .queue_pair import QueuePairAddress as QueuePairAddress
    from .queue_pair import RdmaMemory as RdmaMemory
    from .system import cpus as cpus
    from .system import now_ns as now_ns

# Loaded on first use, since a first transfer does not need them.
_LAZY = {
    "Caps": "provider_info",
    "DeviceStats": "provider_info",
    "FaultRule": "fault",
    "Nic": "nic",
    "NicKey": "nic",
    "ProviderInfo": "provider_info",
    "QueuePair": "queue_pair",
    "QueuePairAddress": "queue_pair",
    "RdmaMemory": "queue_pair",
    "WC_DTYPE": "dtypes",
    "WR_DTYPE": "dtypes",
    "VerbsQueue": "nic",
    "cpus": "system",
    "now_ns": "system",
    "providers": "provider_info",
}

__all__ = [
    "WC_DTYPE",
    "WR_DTYPE",
    "Caps",
    "Completion",
    "Device",
    "DeviceStats",
    "FaultRule",
    "GpuQueue",
    "KernelQueue",
    "Nic",
    "NicKey",
    "ProviderInfo",
    "Queue",
    "QueuePair",
    "QueuePairAddress",
    "RdmaMemory",
    "Region",
    "RemoteRegion",
    "Transfer",
    "VerbsQueue",
    "cpus",
    "now_ns",
    "providers",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
