"""The Linux kernel: what it must have for GPU memory to be handed to other devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc, pci, rdma
from ..facts.kconfig import Kconfig, kconfig
from ..facts.side import side
from ..facts.system import as_root, os_release, restart
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import NO_GPU, none

_LEAST, _SURE = (5, 12), (6, 2)
_VERSION_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using dmabuf"),
    references.GPU_OPERATOR("GPUDirect RDMA, Prerequisites"),
    references.RDMA_DMABUF(),
)
_DISAGREE = (
    "The GPUNetIO guide asks for Linux 6.2; the GPU Operator's documentation for 5.12, since when "
    "the kernel's RDMA devices take a dma-buf."
)


@check("kernel-version", "Linux kernel", goals=WITH_GPU)
def version(case: Case) -> Iterator[Finding]:
    """Is the kernel new enough to hand GPU memory on as a dma-buf?"""
    linux = case.machine.know(uname)
    release, number = linux.release, linux.version
    if not number:
        yield finding.unknown(
            release[:45] or "?",
            needed="6.2 or later",
            why=f"{linux.why or 'uname names no version'}.",
            sources=_VERSION_SOURCES,
        )
        return
    if case.machine.know(side) == "dpu":
        why = "A dma-buf is made on the host: the Arm cores' kernel does not matter for it."
        yield finding.ok(release[:45], needed="any, on a DPU", why=why, sources=_VERSION_SOURCES)
    elif linux.wsl:
        yield finding.n_a("Microsoft's, of WSL: see virtual-machine")
    elif number >= _SURE:
        yield finding.ok(release[:45], needed="6.2 or later", sources=_VERSION_SOURCES)
    else:
        yield _old(case.machine, release, maybe=number >= _LEAST)


def _old(machine: Machine, release: str, *, maybe: bool) -> Finding:
    if machine.know(nvidia_proc.driver).flavour == "closed":
        return _closed(machine, release)
    driver = machine.know(nvidia_proc.driver)
    if driver.loaded and not driver.flavour and driver.why:
        why = f"Whether the kernel modules are the open ones is not known: {driver.why}."
        return finding.unknown(release[:45], needed="6.2 or later", why=why)
    if maybe and _works(machine):
        why = "CUDA gives a dma-buf, and an RDMA device takes one: both were asked."
        return finding.ok(
            release[:45], needed="5.12", why=why, sources=_VERSION_SOURCES, disagree=_DISAGREE
        )
    known = "It may be too old for GPU memory as a dma-buf"
    too = known if maybe else "No device takes GPU memory as a dma-buf"
    return finding.warn(
        release[:45],
        needed="6.2 or later" if maybe else "6.2 or later, at least 5.12",
        why=f"{too}; nvidia-peermem is the other way.",
        remedy=_newer(machine),
        sources=_VERSION_SOURCES,
        disagree=_DISAGREE if maybe else "",
    )


def _closed(machine: Machine, release: str) -> Finding:
    """With the closed modules a newer kernel gives no dma-buf, and it may take the other way."""
    old = len(machine.know(gpudirect.before_turing)) == len(machine.know(gpus.gpus))
    loaded = machine.know(gpudirect.peermem) == "loaded"
    used = (*_VERSION_SOURCES, references.UBUNTU_PEERMEM())
    why = "With the closed modules no kernel gives a dma-buf. nvidia-peermem is the way, for which "
    why += "Ubuntu's kernels from 6.8 on have no interface: keep this one."
    if old or loaded:
        return finding.ok(release[:45], needed="any, for nvidia-peermem", why=why, sources=used)
    unread = machine.read.text("/proc/modules").fault not in ("", "absent")
    say = finding.unknown if unread else finding.warn
    return say(
        release[:45],
        needed="6.2 or later",
        why=why.replace(": keep this one", ""),
        remedy=["# First the open kernel modules, which a newer kernel helps: driver-flavour"],
        sources=used,
    )


def _works(machine: Machine) -> bool:
    """Whether CUDA and the RDMA devices were asked, and all GPUs and one device say yes."""
    said = [gpudirect.dma_buf(machine, gpu) for gpu in gpus.usable(machine)]
    if not said or not all(one.asked and one.works for one in said):
        return False
    kinds = {one.model: one.name for one in reversed(machine.know(rdma.devices).devices)}
    answers = [machine.read.probe("rdma-dmabuf", name).data for name in kinds.values()]
    return any(isinstance(one, Mapping) and one.get("takes") is True for one in answers)


def _newer(machine: Machine) -> list[str]:
    """How a distribution comes by a kernel 6.2: of its own, or not at all."""
    said = machine.know(os_release)
    name, number = said.get("ID", "").lower(), said.get("VERSION_ID", "")
    like = {name, *said.get("ID_LIKE", "").lower().split()}
    if name == "ubuntu" and re.fullmatch(r"[2-9]\d\.\d\d", number, re.ASCII) and number >= "22.04":
        return [restart(f"sudo apt install -y linux-generic-hwe-{number}")]
    if name == "ubuntu":
        return ["# Ubuntu has it from 22.04 on", "sudo do-release-upgrade"]
    if name == "debian" and number == "12":
        arch = "arm64" if machine.know(uname).arm else "amd64"
        names = f"linux-image-{arch} linux-headers-{arch}"  # DKMS builds NVIDIA's modules for it
        return [
            "# with bookworm-backports in /etc/apt/sources.list",
            restart(f"sudo apt install -y -t bookworm-backports {names}"),
        ]
    if name == "debian":
        return ["# Debian has it from 13 on, and in the backports of 12"]
    if name == "fedora":
        return [restart("sudo dnf -y upgrade --refresh kernel kernel-devel")]
    if like & {"rhel", "centos", "fedora"}:
        return ["# Red Hat's 9 has 5.14 with newer parts put in, its 10 has 6.12: take 10"]
    if like & {"suse", "sles", "opensuse"}:
        return ["# SUSE has it from 15 SP6 on: go to that or a later one"]
    return ["# Install a kernel 6.2 or later of your distribution, and boot it"]


_P2PDMA_SOURCES = (
    references.P2PDMA("Driver Writer's Guide"),
    references.DEVICE_PRIVATE(),
    references.OPEN_MODULES("nvidia/nv-dmabuf.c and nv-dma.c"),
)


@check("kernel-p2pdma", "Kernel: PCI peer-to-peer DMA", goals=WITH_GPU, sides=("host",))
def p2pdma(case: Case) -> Iterator[Finding]:
    """Does the kernel itself know of DMA between two PCI devices?"""
    found = case.machine.know(pci.tree).gpus
    if not found:
        yield none(case.machine, NO_GPU)
        return
    others = sorted({one.driver for one in found} - {"nvidia", ""})
    known = case.machine.know(kconfig)
    if known.options and known["CONFIG_PCI_P2PDMA"] != "n":
        yield finding.ok("PCI_P2PDMA=y", sources=_P2PDMA_SOURCES)
    elif not others:
        state = "not set" if known.options else "not known"
        yield finding.n_a(
            f"{state}; NVIDIA's driver does without",
            why="Only other drivers (NVMe, nouveau, vfio) and RDMA on device-private pages lend a "
            "device's memory through it.",
        )
    elif known.options:
        yield finding.warn(
            "PCI_P2PDMA not set",
            needed="PCI_P2PDMA=y",
            why=f"Without it the driver {others[0]} lends no memory of a GPU to other devices.",
            remedy=["# Take a kernel that has it, or NVIDIA's driver, which does without"],
            sources=_P2PDMA_SOURCES,
        )
    else:
        yield _no_config(known, "PCI_P2PDMA=y", "kernel-p2pdma", _P2PDMA_SOURCES)


@check("kernel-hmm", "Kernel: HMM", goals={Goal.RDMA, Goal.GPUNETIO}, sides=("host",))
def hmm(case: Case) -> Iterator[Finding]:
    """Can a GPU use a process's plain memory? No memory of CUDA or dgkit needs it."""
    if not case.machine.know(pci.tree).gpus:
        yield none(case.machine, NO_GPU)
        return
    known = case.machine.know(kconfig)
    used = (references.HMM(), references.CUDA_HMM(), references.DEVICE_PRIVATE())
    names = ("HMM_MIRROR", "DEVICE_PRIVATE")
    off = [name for name in names if known[f"CONFIG_{name}"] == "n"]
    if known.options and not off:
        yield finding.ok("HMM_MIRROR=y, DEVICE_PRIVATE=y", sources=used)
    elif known.options or not known.denied:
        yield finding.n_a(
            f"{' and '.join(off)} not set" if known.options else "not known; nothing needs it",
            why="Kernels on the GPU cannot use memory of malloc, and RDMA on device-private pages "
            "is out. All other memory works.",
        )
    else:
        yield _no_config(known, "HMM_MIRROR=y, DEVICE_PRIVATE=y", "kernel-hmm", used)


def _no_config(
    known: Kconfig, needed: str, name: str, used: tuple[references.Source, ...]
) -> Finding:
    return finding.unknown(
        "no config of this kernel",
        needed=needed,
        why=finding.sentence(known.why),
        remedy=[as_root(name)] if known.denied else [],
        sources=used,
    )
