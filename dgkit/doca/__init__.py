"""DOCA's own objects in Python, for those who think in DOCA's terms.

    from dgkit import doca

    doca.use("softdoca")  # DOCA in software; without this line NVIDIA's own
    with (
        doca.Device() as device, doca.ProgressEngine() as engine, doca.BufInventory(2) as bufs,
        doca.Mmap(text, device) as source, doca.Mmap(room, device) as target,
        doca.Dma(device) as dma,
    ):
        engine.connect(dma)
        dma.start()
        dma.memcpy(bufs.buf_by_data(source), bufs.buf_by_addr(target)).submit().wait()

`codes` has DOCA's numbers and `errors` its errors, each a class of its own. `device`, `mmap`,
`buf`, `dma`, `task` and `pe` are the objects, over `handle`, which knows their lifetimes; `span` is
what a map is told of memory, `shown` how all of it looks in a notebook. `_library` loads DOCA, or
softdoca, by the declarations of `_declarations`. No thread, no Python callback: a completion is
noted in C (native/src/providers/doca_callback.c).
"""

from ._library import use, version
from .buf import Buf, BufInventory
from .codes import Access, Code, FunctionType, RepresentorFilter, State
from .device import Device, DeviceInfo, Representor, RepresentorInfo, devices
from .dma import Dma
from .errors import (
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
from .pe import ProgressEngine
from .task import MemcpyTask

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
