# SPDX-License-Identifier: Apache-2.0
"""Read and write the memory of another process by DMA.

Packages:

session    a host and a DPU connected to each other: regions, transfers, measurements
agent      a process that serves one side to the other: `dgkit serve`
dpu        the work of the DPU side, in a session or in an agent
wire       messages between the two sides
dma        devices, memory regions, queues and transfers
memory     allocation: host memory, pinned memory, GPU memory
doca       DOCA DMA in DOCA's own terms
report     latency and bandwidth reports
gpu_initiated  queues that a GPU's kernels post to; the emulated GPU
testbed    a virtual host and a virtual Arm DPU under QEMU
doctor     diagnosis of a machine: why a GPU and a DPU cannot reach each other
bluefield  a host's BlueField, set up over SSH
fleet      many pairs of host and DPU, on Dask (extra `fleet`)
widgets    panels for notebooks (extra `lab`)
jupyter    `dgkit lab`'s server (extra `lab`)
cli        the `dgkit` command
_native    the C core (native/dgkit.h); only dma/_ffi.py imports it

Modules: types (access flags, statuses, the Memory protocol), errors, validate (arguments), buffers,
units (sizes and times as text), html_cards, runtime_folder (folders removed with their process),
installation (how dgkit was installed),
callbacks, cell_lifetime (ends the panels and sessions of a notebook cell that is run again).

Public names are imported when they are first used: `import dgkit` loads this file and the version.
"""

import os
import sys

from ._version import __version__

TYPE_CHECKING = False  # type checkers treat it like typing.TYPE_CHECKING, whose import costs 3 ms
if TYPE_CHECKING:
    from .dma import WC_DTYPE as WC_DTYPE
    from .dma import WR_DTYPE as WR_DTYPE
    from .dma import Completion as Completion
    from .dma import Device as Device
    from .dma import FaultRule as FaultRule
    from .dma import GpuQueue as GpuQueue
    from .dma import Queue as Queue
    from .dma import Region as Region
    from .dma import RemoteRegion as RemoteRegion
    from .dma import Transfer as Transfer
    from .dma.prepared import PreparedOp as PreparedOp
    from .doctor.api import doctor as doctor
    from .errors import AccessDenied as AccessDenied
    from .errors import BluefieldError as BluefieldError
    from .errors import BoundsError as BoundsError
    from .errors import ClosedError as ClosedError
    from .errors import DescriptorError as DescriptorError
    from .errors import DeviceUnavailable as DeviceUnavailable
    from .errors import DgkitError as DgkitError
    from .errors import ExportError as ExportError
    from .errors import KernelError as KernelError
    from .errors import LimitReached as LimitReached
    from .errors import NativeError as NativeError
    from .errors import OutOfMemory as OutOfMemory
    from .errors import PeerError as PeerError
    from .errors import PeerLost as PeerLost
    from .errors import PeerRefused as PeerRefused
    from .errors import PeerTimeout as PeerTimeout
    from .errors import PeerVersion as PeerVersion
    from .errors import QueueFull as QueueFull
    from .errors import QueueInUse as QueueInUse
    from .errors import RegionBusy as RegionBusy
    from .errors import TestbedError as TestbedError
    from .errors import TransferError as TransferError
    from .errors import Unsupported as Unsupported
    from .fleet import Fleet as Fleet
    from .memory import HostMemory as HostMemory
    from .memory import empty as empty
    from .memory import wrap as wrap
    from .memory.gpu import GpuMemory as GpuMemory
    from .report import BandwidthReport as BandwidthReport
    from .report import Differences as Differences
    from .report import LatencyReport as LatencyReport
    from .report import differences as differences
    from .session import Monitor as Monitor
    from .session import Session as Session
    from .session import SessionRegion as SessionRegion
    from .session import SessionTransfer as SessionTransfer
    from .session import TransferReport as TransferReport
    from .session.connect import connect as connect
    from .types import Access as Access
    from .types import Op as Op
    from .types import Status as Status
    from .types import TransferPath as TransferPath
    from .widgets.allocate import AllocatePanel as AllocatePanel
    from .widgets.dashboard import dashboard as dashboard
    from .widgets.doctor import DoctorPanel as DoctorPanel
    from .widgets.heatmap import HeatMap as HeatMap
    from .widgets.hexview import HexView as HexView
    from .widgets.latency import LatencyPlot as LatencyPlot
    from .widgets.packets import PacketPanel as PacketPanel
    from .widgets.queuepair import QueuePanel as QueuePanel
    from .widgets.transfer import TransferPanel as TransferPanel
    from .widgets.view import view as view

_NAMES = {
    "dma": (
        *(
            "Completion",
            "Device",
            "FaultRule",
            "GpuQueue",
            "Queue",
            "Region",
            "RemoteRegion",
            "Transfer",
        ),
        *("WC_DTYPE", "WR_DTYPE"),
    ),
    "dma.prepared": ("PreparedOp",),
    "memory": ("HostMemory", "empty", "wrap"),
    "memory.gpu": ("GpuMemory",),
    "report": ("BandwidthReport", "Differences", "LatencyReport", "differences"),
    "session": (
        *("Monitor", "Session", "SessionRegion", "SessionTransfer", "TransferReport", "connect"),
    ),
    "types": ("Access", "Op", "Status", "TransferPath"),
    "errors": (
        *("AccessDenied", "BluefieldError", "BoundsError", "ClosedError", "DescriptorError"),
        *("DeviceUnavailable", "DgkitError", "ExportError", "KernelError", "LimitReached"),
        *("NativeError", "OutOfMemory", "PeerError", "PeerLost", "PeerRefused", "PeerTimeout"),
        *("PeerVersion", "QueueFull", "QueueInUse", "RegionBusy", "TestbedError"),
        *("TransferError", "Unsupported"),
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
# Not in `__all__`: `from dgkit import *` must work without the extras.
_LAB = {
    "AllocatePanel": "widgets.allocate",
    "DoctorPanel": "widgets.doctor",
    "HeatMap": "widgets.heatmap",
    "HexView": "widgets.hexview",
    "LatencyPlot": "widgets.latency",
    "PacketPanel": "widgets.packets",
    "QueuePanel": "widgets.queuepair",
    "TransferPanel": "widgets.transfer",
    "dashboard": "widgets.dashboard",
    "view": "widgets.view",
}
_FLEET = {"Fleet": "fleet"}
_EXTRAS = {**dict.fromkeys(_LAB, "lab"), **dict.fromkeys(_FLEET, "fleet"), "fleet": "fleet"}
_EXTRAS["PacketPanel"] = "packets"
_RENAMED = {"Path": "TransferPath"}
_MODULES = (
    *(module for module in _NAMES if "." not in module),
    "agent",
    "doca",
    "doctor",
    "fleet",
    "gpu_initiated",
    "testbed",
    "widgets",
    "wire",
)

__all__ = ["__version__"]
__all__ += list(_HOME)


def __getattr__(name: str) -> object:
    """Import a public name or a package at its first use."""
    from importlib import import_module

    if name in _RENAMED:
        from warnings import warn

        old, name = name, _RENAMED[name]
        text = f"dgkit.{old} is called dgkit.{name}; the next release has no dgkit.{old}"
        warn(text, DeprecationWarning, stacklevel=2)
    home = _HOME.get(name) or _LAB.get(name) or _FLEET.get(name)
    if home is None and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if home is None:
            return import_module(f"{__name__}.{name}")
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as exc:
        if name not in _EXTRAS or (exc.name or "").startswith(__name__):
            raise
        from .installation import NeedsExtra

        return NeedsExtra(name, exc.name or "", _EXTRAS[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List all public names, imported or not."""
    return sorted({*globals(), *__all__, *_LAB, *_FLEET, *_MODULES})


def _check_platform() -> None:
    """Raise ImportError unless this is Linux on x86-64 or aarch64.

    The C core requires memfd, pidfd and a 64-bit machine.
    """
    if sys.platform == "linux":
        machine = os.uname().machine if sys.maxsize > 2**32 else "32-bit Python"
        if machine in ("x86_64", "aarch64"):
            return
        platform = f"Linux on {machine}"
    else:
        platform = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
    raise ImportError(
        f"dgkit runs on Linux, on x86-64 and aarch64; this is {platform}. Use WSL2 (Windows), a "
        "Linux container (Docker, Podman), or the Binder link in the README.",
        name=__name__,
    )


_check_platform()
if "IPython" in sys.modules:  # perhaps a notebook, whose cells end the sessions of their last runs
    from . import cell_lifetime as _cell_lifetime  # noqa: F401
