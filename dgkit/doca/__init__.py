# SPDX-License-Identifier: Apache-2.0
"""DOCA's objects in Python, for users who know DOCA's API.

    from dgkit import doca

    doca.use("softdoca")  # software DOCA; without this line, NVIDIA's
    with (
        doca.Device() as device, doca.ProgressEngine() as engine, doca.BufInventory(2) as bufs,
        doca.Mmap(text, device) as source, doca.Mmap(room, device) as target,
        doca.Dma(device) as dma,
    ):
        engine.connect(dma)
        dma.start()
        dma.memcpy(bufs.buf_by_data(source), bufs.buf_by_addr(target)).submit().wait()

Modules:
    doca_device: Devices and representors.
    mmap: Memory maps, and the memory of a map.
    buf: Buffers and their inventory.
    dma: DMA contexts, their tasks, and progress engines.
    handle: Base of these objects: lifetimes, locking, HTML cards.
    codes: DOCA's enums.
    doca_errors: DOCA's error codes as exceptions.
    _library: Loads DOCA or softdoca.
    _declarations: C declarations of DOCA.

The package uses no threads and no Python callbacks: C code records the completions
(native/src/providers/doca_callback.c).
"""

from ._library import use, version
from .buf import Buf, BufInventory
from .codes import Access, Code, FunctionType, RepresentorFilter, State
from .dma import Dma, MemcpyTask, ProgressEngine
from .doca_device import Device, DeviceInfo, Representor, RepresentorInfo, devices
from .doca_errors import (
    Again,
    AlreadyExist,
    Authentication,
    BadConfig,
    BadState,
    ConnectionAborted,
    ConnectionInProgress,
    ConnectionReset,
    DeviceFatalError,
    DocaError,
    Driver,
    Empty,
    Full,
    Initialization,
    InProgress,
    InUse,
    InvalidValue,
    IoFailed,
    NoLock,
    NoMemory,
    NotConnected,
    NotFound,
    NotPermitted,
    NotSupported,
    OperatingSystem,
    Shutdown,
    Skipped,
    TimeOut,
    TooBig,
    Unexpected,
    Unknown,
    UnsupportedVersion,
)
from .mmap import Mmap

__all__ = [
    "Access",
    "Again",
    "AlreadyExist",
    "Authentication",
    "BadConfig",
    "BadState",
    "Buf",
    "BufInventory",
    "Code",
    "ConnectionAborted",
    "ConnectionInProgress",
    "ConnectionReset",
    "Device",
    "DeviceFatalError",
    "DeviceInfo",
    "Dma",
    "DocaError",
    "Driver",
    "Empty",
    "Full",
    "FunctionType",
    "InProgress",
    "InUse",
    "Initialization",
    "InvalidValue",
    "IoFailed",
    "MemcpyTask",
    "Mmap",
    "NoLock",
    "NoMemory",
    "NotConnected",
    "NotFound",
    "NotPermitted",
    "NotSupported",
    "OperatingSystem",
    "ProgressEngine",
    "Representor",
    "RepresentorFilter",
    "RepresentorInfo",
    "Shutdown",
    "Skipped",
    "State",
    "TimeOut",
    "TooBig",
    "Unexpected",
    "Unknown",
    "UnsupportedVersion",
    "devices",
    "use",
    "version",
]
