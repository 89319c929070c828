# SPDX-License-Identifier: Apache-2.0
"""nvidia-peermem: the kernel interface that it needs, and whether it is registered there."""

from __future__ import annotations

import re

from ..machine import Machine
from . import kernel_log, nvidia_proc
from .distribution import os_release
from .doca import ofed
from .nvidia_proc import version_key
from .uname import uname

PEERS = "/sys/kernel/mm/memory_peers"
_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem"})
_REFUSED = re.compile(
    r"(?:nvidia_peermem|nv_peer_mem): (?:disagrees about version of symbol|Unknown symbol) ib_\w+"
)


def lacks_interface(machine: Machine) -> bool:
    """Return whether the kernel lacks the interface; modprobe then fails: 'Invalid argument'.

    MLNX_OFED and DOCA-OFED provide the interface. Mainline Linux never did. Of the distribution
    kernels, only Ubuntu's provide it: those up to 6.7 and those of the flavour linux-nvidia.
    Return False if unknown.

    Source: Ubuntu, NVIDIA GPUDirect over InfiniBand migration paths.
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


def lists_peers(machine: Machine) -> bool | None:
    """Return whether NVIDIA's module is listed in PEERS; None if there is no such directory.

    MLNX_OFED and Ubuntu's older kernels create the directory when the first module registers
    (ib_core, peer_mem.c). NVIDIA's later kernels register modules without creating it.
    """
    listing = machine.read.names(PEERS)
    return any(name.startswith("nv") for name in listing.names) if listing.ok else None


def registered(machine: Machine) -> bool | None:
    """Return whether the loaded module is registered with ib_core; None if that is not visible.

    A registered module uses a function of ib_core, so /proc/modules lists it as a user of ib_core.
    """
    if (listed := machine.know(lists_peers)) is not None:
        return listed
    core = (machine.know(nvidia_proc.modules) or {}).get("ib_core")
    return bool(_MODULES & set(core.users)) if core is not None and core.users else None


def peermem_state(machine: Machine) -> str:
    """Return the state of nvidia-peermem, or of nv_peer_mem beside a driver without it.

    "loaded", "unregistered" (loaded, but ib_core does not know it), "loadable", "absent", or "" if
    unknown.
    """
    loaded = machine.know(nvidia_proc.modules)
    names = _MODULES & set(loaded or ())
    if names or machine.read.names("/sys/module/nvidia_peermem").ok:
        return "unregistered" if machine.know(registered) is False else "loaded"
    if loaded is None:
        return ""
    called = ("nvidia-peermem", *(("nv_peer_mem",) if machine.know(is_separate) else ()))
    found = [machine.read.run("modinfo", "-F", "filename", name) for name in called]
    if any(reading.ok and reading.code == 0 and reading.text.strip() for reading in found):
        return "loadable"
    return "absent" if found[0].ok and found[0].code else ""


_OPEN = (515,)  # the first driver with open modules
_COMES_WITH_DRIVER = (470,)  # older drivers need Mellanox's separate nv_peer_mem


def is_separate(machine: Machine) -> bool:
    """Return whether the driver is too old to include nvidia-peermem."""
    return () < version_key(machine.know(nvidia_proc.driver).version) < _COMES_WITH_DRIVER


def is_outdated(machine: Machine) -> bool:
    """Return whether Mellanox's nv_peer_mem is loaded although the driver has nvidia-peermem."""
    loaded = machine.know(nvidia_proc.modules) or {}
    old = "nv_peer_mem" in loaded and "nvidia_peermem" not in loaded
    known = version_key(machine.know(nvidia_proc.driver).version)
    return old and known >= _COMES_WITH_DRIVER


def prefers_peermem(machine: Machine) -> str:
    """Return why nvidia-peermem is the easier choice with closed modules; "" if it is not.

    Source: NVIDIA GPU Operator documentation, GPUDirect RDMA, Prerequisites.
    """
    state = machine.know(peermem_state)
    if () < version_key(machine.know(nvidia_proc.driver).version) < _OPEN:
        return "Drivers before 515 have no open modules"
    if state and () < machine.know(uname).version < (5, 12):
        return "Linux before 5.12 registers no dma-buf, whichever the modules are"
    refused = machine.know(lacks_interface) or machine.know(trouble)
    return "nvidia-peermem is installed" if state == "loadable" and not refused else ""


def other_ofed(machine: Machine) -> str:
    """Return the release of an installed MLNX_OFED whose drivers are not running; "" if none.

    The kernel's own mlx5_core has no version, or 5.0-0. If it runs, MLNX_OFED's module was not
    built for this kernel.
    """
    found = machine.know(ofed)
    installed = found.release if found.info.ok else None
    known = found.module.ok or found.module.absent
    return str(installed) if installed and known and not found.driver else ""


def trouble(machine: Machine) -> str:
    """Return why the installed module cannot be loaded: "refused", "built without" or "".

    "refused": according to the kernel log, the symbols of ib_core differ from those that the module
    was built for (err -22). "built without": the module was built when MLNX_OFED's ib_core was not
    installed, and its initialization fails.
    """
    depends = machine.read.run("modinfo", "-F", "depends", "nvidia-peermem")
    if any(_REFUSED.search(line.text) for line in machine.know(kernel_log.log).lines):
        return "refused"
    # an ib_core that is not listed may be built into the kernel
    core = "ib_core" in (machine.know(nvidia_proc.modules) or {})
    needs = re.split(r"[,\s]+", depends.text.strip())
    built = depends.ok and not depends.code and "nvidia" in needs
    return "built without" if core and built and "ib_core" not in needs else ""
