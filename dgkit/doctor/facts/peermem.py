"""nvidia-peermem: the kernel's interface for it, and whether the module is registered there."""

from __future__ import annotations

import re

from ..machine import Machine
from . import nvidia_proc, versions
from .distribution import os_release
from .uname import uname

__all__ = [
    "PEERS",
    "lacks_interface",
    "lists_peers",
    "log_lines",
    "peermem_state",
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
    info, module = machine.read.together(["run ofed_info -s", "text /sys/module/mlx5_core/version"])
    known = info.ok or info.absent
    if not name or not known or versions.ofed(info.text) or versions.driver(module.text):
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
