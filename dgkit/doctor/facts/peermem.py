"""nvidia-peermem: the kernel's interface for it, and whether the module is registered there."""

from __future__ import annotations

import re

from ..machine import Machine
from . import nvidia_proc
from .distribution import os_release
from .nvidia_proc import version_key
from .ofed import ofed
from .uname import uname

__all__ = [
    "PEERS",
    "is_outdated",
    "is_separate",
    "lacks_interface",
    "lists_peers",
    "log_lines",
    "other_ofed",
    "peermem_state",
    "prefers_peermem",
    "registered",
    "trouble",
]

PEERS = "/sys/kernel/mm/memory_peers"
_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem"})
_REFUSED = re.compile(
    r"(?:nvidia_peermem|nv_peer_mem): (?:disagrees about version of symbol|Unknown symbol) ib_\w+"
)


def lacks_interface(machine: Machine) -> bool:
    """Return whether the kernel lacks it, so that modprobe fails with 'Invalid argument'.

    MLNX_OFED and DOCA-OFED provide it. Mainline Linux never did; of the distribution kernels, only
    Ubuntu's do: up to 6.7, and those of the flavour linux-nvidia. False if unknown.

    Ubuntu, NVIDIA GPUDirect over InfiniBand migration paths.
    """
    name = machine.know(os_release).get("ID", "").lower()
    found = machine.know(ofed)
    known = found.info.ok or found.info.absent
    if not name or not known or found.release or found.driver:
        return False
    if name != "ubuntu":
        return True
    linux = machine.know(uname)
    return linux.version >= (6, 8) and "nvidia" not in linux.release


def log_lines(text: str) -> list[str]:
    """Return what the kernel's log says of functions that the module misses in ib_core."""
    return [match[0] for match in _REFUSED.finditer(text)]


def lists_peers(machine: Machine) -> bool | None:
    """Return whether PEERS has NVIDIA's module; None if the kernel has no such folder.

    MLNX_OFED and Ubuntu's older kernels make the folder when the first module registers (ib_core,
    peer_mem.c); later kernels of NVIDIA's register modules without it.
    """
    listing = machine.read.names(PEERS)
    return any(name.startswith("nv") for name in listing.names) if listing.ok else None


def registered(machine: Machine) -> bool | None:
    """Return whether the loaded module is registered with ib_core; None if that is not visible.

    It then uses a function of ib_core, which /proc/modules shows.
    """
    if (listed := machine.know(lists_peers)) is not None:
        return listed
    core = (machine.know(nvidia_proc.modules) or {}).get("ib_core")
    return bool(_MODULES & set(core.users)) if core is not None and core.users else None


def peermem_state(machine: Machine) -> str:
    """Return the state of nvidia-peermem.

    "loaded", "unregistered" (loaded, but ib_core does not know it), "loadable", "absent", or "" if
    unknown.
    """
    loaded = machine.know(nvidia_proc.modules)
    names = _MODULES & set(loaded or ())
    if names or machine.read.names("/sys/module/nvidia_peermem").ok:
        return "unregistered" if machine.know(registered) is False else "loaded"
    if loaded is None:
        return ""
    found = machine.read.run("modinfo", "-F", "filename", "nvidia-peermem")
    if found.ok and found.code == 0 and found.text.strip():
        return "loadable"
    return "absent" if found.ok and found.code else ""


_OPEN = (515,)  # the first driver with open modules
_COMES_WITH_DRIVER = (470,)  # before it there was Mellanox's nv_peer_mem


def is_separate(machine: Machine) -> bool:
    """Return whether the driver is one of those that come without nvidia-peermem."""
    return () < version_key(machine.know(nvidia_proc.driver).version) < _COMES_WITH_DRIVER


def is_outdated(machine: Machine) -> bool:
    """Return whether Mellanox's nv_peer_mem is loaded though the driver has nvidia-peermem."""
    loaded = machine.know(nvidia_proc.modules) or {}
    old = "nv_peer_mem" in loaded and "nvidia_peermem" not in loaded
    known = version_key(machine.know(nvidia_proc.driver).version)
    return old and known >= _COMES_WITH_DRIVER


def prefers_peermem(machine: Machine) -> str:
    """Return why nvidia-peermem is nearer than a dma-buf where the modules are closed; "" if not.

    NVIDIA GPU Operator documentation, GPUDirect RDMA, Prerequisites.
    """
    state = machine.know(peermem_state)
    if () < version_key(machine.know(nvidia_proc.driver).version) < _OPEN:
        return "Drivers before 515 have no open modules"
    if state and () < machine.know(uname).version < (5, 12):
        return "Linux before 5.12 registers no dma-buf, whichever the modules are"
    refused = machine.know(lacks_interface) or machine.know(trouble)
    return "nvidia-peermem is installed" if state == "loadable" and not refused else ""


def other_ofed(machine: Machine) -> str:
    """Return the MLNX_OFED that is installed while the kernel's own drivers run; "" if none.

    The kernel's mlx5_core has no version, or 5.0-0: MLNX_OFED's was not built for this kernel.
    """
    found = machine.know(ofed)
    installed = found.release if found.info.ok else None
    known = found.module.ok or found.module.absent
    return str(installed) if installed and known and not found.driver else ""


def trouble(machine: Machine) -> str:
    """Return why the module that is installed cannot be loaded: "refused", "built without", "".

    "refused": the kernel's log says that ib_core's functions are others than it was built for (err
    -22). "built without": it was built when there was no ib_core of MLNX_OFED, and ends at once.
    """
    log, depends = machine.read.together(["run dmesg", "run modinfo -F depends nvidia-peermem"])
    if log_lines(log.text):
        return "refused"
    core = "ib_core" in (machine.know(nvidia_proc.modules) or {})  # else it may be built in
    needs = re.split(r"[,\s]+", depends.text.strip())
    built = depends.ok and not depends.code and "nvidia" in needs
    return "built without" if core and built and "ib_core" not in needs else ""
