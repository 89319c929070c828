"""The NVIDIA driver: version, open or closed kernel modules, persistence mode, registry keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc, pci
from ..facts.gpus import Gpu
from ..facts.nvidia_proc import Driver, version_key
from ..facts.nvidia_smi import smi
from ..facts.system import driver_anew, initramfs
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check
from ._no_driver import MODULES, TROUBLES, not_loaded
from ._per_gpu import NO_GPU, each, nothing

_HOST = ("host",)
_GUIDE = references.GPUNETIO
_INSTALL = _GUIDE("GPU Memory Mapping, Using dmabuf")
_KERNEL_MODULES = references.DRIVER_GUIDE("Kernel Modules")
_CONF = "/etc/modprobe.d/nvidia.conf"
_PLAIN = re.compile(r"[\w.-]{1,64}", re.ASCII)  # a key or a value that may go into it


@check("gpu-present", "NVIDIA GPU", goals=WITH_GPU, sides=_HOST)
def present(case: Case) -> Iterator[Finding]:
    """Is there an NVIDIA GPU in this machine?"""
    found = case.machine.know(gpus.gpus)
    source = references.GPUDIRECT("Overview")
    if found:
        yield _present(case.machine, [source])
        return
    tree = case.machine.know(pci.tree)
    if tree.why:
        why = f"The PCI devices cannot be listed: {tree.why}."
        ask = ["lspci -d 10de:"]
        yield finding.unknown("?", needed="one or more", why=why, remedy=ask, sources=[source])
        return
    yield _absent(case.machine, [source])


def _absent(machine: Machine, source: list[references.Source]) -> Finding:
    remedy = ["lspci -d 10de:", "# With no GPU at all: dgkit doctor --goal laptop"]
    return finding.fail(
        NO_GPU, needed="one or more", why=_no_gpu(machine), remedy=remedy, sources=source
    )


def _no_gpu(machine: Machine) -> str:
    """Why none may be seen."""
    model = machine.read.text("/proc/device-tree/model").text.lower()
    why = "No PCI device is an NVIDIA GPU: there is none, it is switched off, or it was not handed "
    why += "to this virtual machine."
    if "jetson" in model or "tegra" in model:
        why = "The GPU of a Tegra is no PCI device: CPU and GPU share one memory, which other "
        why += "devices reach where it is pinned."
    elif machine.know(uname).wsl:
        why = "Under WSL the GPU is a part of Windows and no PCI device: its memory cannot be "
        why += "handed to a NIC or DPU."
    return why


def _present(machine: Machine, source: list[references.Source]) -> Finding:
    found, used = machine.know(gpus.gpus), gpus.usable(machine)
    names = sorted({one.name or one.address for one in used})
    text = ("" if len(used) == 1 else f"{len(used)} x ") + ", ".join(names)
    if len(used) == len(found):
        return finding.ok(text, needed="one or more", sources=source)
    others = ", ".join(one.address for one in found if one not in used)
    return finding.warn(
        f"{text}, of {len(found)}",
        needed="one or more",
        why=f"nvidia-smi does not list {others}: not handed to this container, held by another "
        "driver, or no longer answering.",
        remedy=["nvidia-smi -L", "sudo dmesg | grep -i xid"],
        sources=source,
    )


@check("driver-loaded", "NVIDIA driver", goals=WITH_GPU, sides=_HOST)
def loaded(case: Case) -> Iterator[Finding]:
    """Is NVIDIA's kernel driver loaded, and do its libraries and device files work?"""
    empty = nothing(case, driver=False)
    if empty is not None:  # errors name this check: it says what is wrong
        why = empty.why or _no_gpu(case.machine)
        yield msgspec.structs.replace(empty, needed="dgkit doctor gpu-present", why=why)
        return
    driver, said = case.machine.know(nvidia_proc.driver), case.machine.know(smi)
    if driver.loaded is False and not said.driver:
        yield not_loaded(case.machine)
    elif said.trouble in TROUBLES:
        found, why, remedy = TROUBLES[said.trouble]
        why = f"{why} nvidia-smi: {said.why.rstrip('.')}."
        source = [references.NVIDIA_SMI()]
        yield finding.fail(found, needed="loaded", why=why, remedy=remedy, sources=source)
    elif _no_file(case.machine):
        why = "Programs reach the GPU through /dev/nvidia0 and /dev/nvidiactl, which are not there."
        do = ["sudo nvidia-modprobe -c 0 -u", "# In a container: start it with --gpus all"]
        yield finding.fail(
            "no device files", needed="loaded", why=why, remedy=do, sources=[MODULES]
        )
    elif driver.loaded is None and not said.driver:
        yield finding.unknown(
            "?", needed="loaded", why=f"{driver.why}.", remedy=["nvidia-smi"], sources=[MODULES]
        )
    else:
        version = driver.version or said.driver or "version not known"
        yield _rights(case.machine) or finding.ok(
            f"{version}, loaded", needed="loaded", sources=[MODULES]
        )


def _no_file(machine: Machine) -> bool:
    """Whether /dev is known and lacks them; nvidia-smi makes them, where it may."""
    listing = machine.read.names("/dev")
    lacks = "nvidiactl" not in listing.names and "dxg" not in listing.names  # dxg: WSL
    return listing.ok and lacks and not machine.know(smi).gpus


def _rights(machine: Machine) -> Finding | None:
    """A warning where device files are not for everybody, by the driver's DeviceFileMode."""
    params = nvidia_proc.colons(machine.read.text("/proc/driver/nvidia/params").text)
    mode = params.get("DeviceFileMode", "")
    if (
        not re.fullmatch("[0-9]{1,9}", mode)
        or int(mode) & 0o6 == 0o6
        or machine.read.ask("euid").data == 0
    ):
        return None
    if machine.know(smi).gpus:  # this user is in the group
        return None
    group = params.get("DeviceFileGID", "0")
    group = group if re.fullmatch(r"\d{1,10}", group, re.ASCII) else "0"
    return finding.warn(
        f"device files are {int(mode) & 0o777:04o}",
        needed="0666, or the group",
        why=f"Only root and the group {group} may open /dev/nvidia*.",
        remedy=[f"sudo usermod -aG $(getent group {group} | cut -d: -f1) $USER"],
        sources=[MODULES],
    )


@check("driver-flavour", "Open kernel modules", goals=WITH_GPU, sides=_HOST)
def flavour(case: Case) -> Iterator[Finding]:
    """Are the kernel modules the open ones, which dma-buf needs?"""
    machine = case.machine
    driver = machine.know(nvidia_proc.driver)
    empty = nothing(case)
    if empty is not None:
        yield empty
    elif driver.flavour == "open":
        yield finding.ok(f"open, {driver.version}", needed="open", sources=[_INSTALL])
    elif not driver.flavour:
        yield finding.unknown(
            driver.version or "?",
            needed="open",
            why=f"{driver.why}.",
            remedy=["cat /proc/driver/nvidia/version", "modinfo -F license nvidia"],
            sources=[_INSTALL],
        )
    elif len(machine.know(gpudirect.before_turing)) == len(machine.know(gpus.gpus)):
        why = "The open modules drive no GPU before Turing: nvidia-peermem is the way, with the "
        why += "closed ones, whose last branch for it is 580."
        found, needed = f"closed, {driver.version}", "closed: before Turing"
        yield finding.ok(found, needed=needed, why=why, sources=[_KERNEL_MODULES])
    else:
        yield _closed(machine, driver)


def _closed(machine: Machine, driver: Driver) -> Finding:
    older = {"loaded": "is loaded", "loadable": "can be loaded", "absent": "is not there"}
    state = machine.know(gpudirect.peermem)
    way = f"nvidia-peermem, the older way, {older.get(state, 'may be there')}."
    say = finding.fail if state == "absent" else finding.warn
    return say(
        f"closed, {driver.version}",
        needed="open",
        why=f"GPU memory cannot be handed on as a dma-buf; {way}",
        remedy=_open(machine),
        sources=[_INSTALL, _KERNEL_MODULES],
    )


def _open(machine: Machine) -> list[str]:
    """How to come by the open modules, unless a GPU would be lost to them."""
    old = machine.know(gpudirect.before_turing)
    if not old:
        return driver_anew(machine)
    names = ", ".join(one.name or one.address for one in old)
    return [f"# The open modules do not drive {names}: take it out first, or use nvidia-peermem"]


@check("driver-version", "NVIDIA driver version", goals=WITH_GPU, sides=_HOST)
def version(case: Case) -> Iterator[Finding]:
    """Is the driver new enough for CUDA, DOCA and GPUNetIO?"""
    machine = case.machine
    driver = machine.know(nvidia_proc.driver)
    known = driver.version or machine.know(smi).driver
    source = references.CUDA_COMPATIBILITY("Minor Version Compatibility, table 1")
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    if not version_key(known):
        why, remedy = f"{driver.why}.", ["cat /proc/driver/nvidia/version"]
        yield finding.unknown(known or "?", needed="525", why=why, remedy=remedy, sources=[source])
        return
    needed = "580" if case.goal is Goal.GPUNETIO else "525"
    remedy = driver_anew(machine)
    if version_key(known) < (525,):
        why = "CUDA 12, the oldest that dgkit and GPUNetIO take, asks for driver 525."
        yield finding.fail(known, needed=needed, why=why, remedy=remedy, sources=[source])
    elif needed == "580" and version_key(known) < (580,):
        why = (
            "GPUNetIO's static library (DMA, Comch, RDMA) is built with CUDA 13.0, which asks for "
            "driver 580; its header-only parts (Ethernet, Verbs) take CUDA 12."
        )
        both = [source, _GUIDE("CUDA Dependency")]
        yield finding.warn(known, needed=needed, why=why, remedy=remedy, sources=both)
    else:
        yield finding.ok(known, needed=needed, sources=[source])


@check("driver-persistence", "Persistence mode", goals=WITH_GPU, sides=_HOST)
def persistence(case: Case) -> Iterator[Finding]:
    """Does the driver stay initialised while nobody uses the GPU?"""
    source = _GUIDE("CUDA Dependency")

    def judge(gpu: Gpu) -> Finding:
        if gpu.persistence is None:
            why = case.machine.know(smi).why or "nvidia-smi says nothing of it"
            ask = ["nvidia-smi --query-gpu=persistence_mode --format=csv"]
            return finding.unknown("?", needed="on", why=f"{why}.", remedy=ask, sources=[source])
        if gpu.persistence:
            return finding.ok("on", needed="on", sources=[source])
        return finding.warn(
            "off",
            needed="on",
            why="The driver is set up anew for the first program, which takes seconds.",
            remedy=["sudo nvidia-smi -pm 1", "sudo systemctl enable --now nvidia-persistenced"],
            sources=[source],
        )

    yield from each(case, judge)


@check("driver-registry", "Use without root", goals=[Goal.GPUNETIO], sides=_HOST)
def registry(case: Case) -> Iterator[Finding]:
    """Does the driver let GPUNetIO's Verbs, RDMA and DMA run without root (PeerMappingOverride)?"""
    params = case.machine.read.text("/proc/driver/nvidia/params")
    source = _GUIDE("Running without Root Privileges")
    needed = "PeerMappingOverride=1"
    empty = nothing(case)
    if empty is not None:
        yield empty
    elif params.absent or case.machine.read.ask("euid").data == 0:
        yield finding.n_a("the driver has no such file" if params.absent else "runs as root")
    elif not params.ok:
        ask = ["sudo grep RegistryDwords /proc/driver/nvidia/params"]
        yield finding.unknown(
            "?", needed=needed, why=f"{params.why}.", remedy=ask, sources=[source]
        )
    elif nvidia_proc.registry(params.text).get("PeerMappingOverride") == "1":
        yield finding.ok(needed, needed=needed, sources=[source])
    else:
        written = "PeerMappingOverride=1" in case.machine.read.text(_CONF).text
        keys = {**nvidia_proc.registry(params.text), "PeerMappingOverride": "1"}
        words = "".join(f"{name}={value};" for name, value in keys.items())
        line = f'options nvidia NVreg_RegistryDwords="{words}"'  # the last such line counts alone
        add = f"echo '{line}' | sudo tee -a {_CONF}"
        if not all(_PLAIN.fullmatch(word) for one in keys.items() for word in one):
            add = f"# add PeerMappingOverride=1; to NVreg_RegistryDwords in {_CONF}"
        write = [] if written else [add]
        write.append(initramfs(case.machine))
        yield finding.warn(
            "written, not in force yet" if written else "not set",
            needed=needed,
            why="GPUNetIO's Verbs, RDMA and DMA programs need root; those of Ethernet always do.",
            remedy=[*write, "# Switch the machine off and on: the guide asks for a cold reboot."],
            sources=[source],
        )
