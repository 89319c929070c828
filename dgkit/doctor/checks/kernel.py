# SPDX-License-Identifier: Apache-2.0
"""Linux kernel: its version and options for sharing GPU memory with other devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc, pci, rdma
from ..facts.bluefield import side
from ..facts.distribution import as_root, foreign_host, os_release, restart
from ..facts.kconfig import Kconfig, kconfig
from ..facts.nvidia_proc import version_key
from ..facts.peermem import peermem_state, prefers_peermem
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import NO_GPU, applies, device, missing_device, readable
from ..registry import check

_MAYBE, _SURE = (5, 12), (6, 2)
_VERSION_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using dmabuf"),
    references.GPU_OPERATOR("GPUDirect RDMA, Prerequisites"),
    references.RDMA_DMABUF(),
)
_DISAGREE = (
    "The GPUNetIO guide requires Linux 6.2; the GPU Operator's documentation 5.12, from which the "
    "kernel's RDMA devices accept a dma-buf."
)


def _release_unread(case: Case) -> str:
    linux = case.machine.know(uname)
    return "" if linux.release else linux.why or "The system gives no release"


@check(
    "kernel-version",
    "Linux kernel",
    asks="Is the kernel new enough to share GPU memory as a dma-buf?",
    goals=WITH_GPU,
    needed="6.2 or later",
    requires=[
        readable(_release_unread, "version not known", sources=_VERSION_SOURCES),
        applies(
            lambda case: not case.machine.know(uname).wsl,
            "Microsoft's, of WSL: see virtual-machine",
        ),
        readable(
            lambda case: (
                "" if case.machine.know(uname).version else "This release has no version number"
            ),
            lambda case: case.machine.know(uname).release[:45],
            sources=_VERSION_SOURCES,
        ),
    ],
)
def _kernel_version(case: Case) -> Finding:
    linux = case.machine.know(uname)
    release, number = linux.release, linux.version
    if case.machine.know(side) == "dpu":
        why = "The host exports the dma-buf: the Arm cores' kernel does not matter."
        return finding.ok(release[:45], needed="any, on a DPU", why=why, sources=_VERSION_SOURCES)
    if number >= _SURE:
        return finding.ok(release[:45], sources=_VERSION_SOURCES)
    maybe = number >= _MAYBE
    if case.machine.know(nvidia_proc.driver).flavour == "closed":
        old = len(case.machine.know(gpudirect.before_turing)) == len(case.machine.know(gpus.gpus))
        loaded = case.machine.know(peermem_state) == "loaded" or bool(
            case.machine.know(prefers_peermem)
        )
        sources = (*_VERSION_SOURCES, references.UBUNTU_PEERMEM())
        why = (
            "With the closed modules no kernel exports a dma-buf. The alternative is "
            "nvidia-peermem, "
        )
        why += "for which Ubuntu's kernels from 6.8 on have no interface: keep this one."
        if old or loaded:
            return finding.ok(
                release[:45], needed="any, for nvidia-peermem", why=why, sources=sources
            )
        unread = case.machine.read.text("/proc/modules").fault not in ("", "absent")
        make = finding.unknown if unread else finding.warn
        return make(
            release[:45],
            why=why.replace(": keep this one", ""),
            remedy=[
                (
                    "# First install the open kernel modules, which a newer kernel helps: "
                    "driver-flavour"
                )
            ],
            sources=sources,
        )
    driver = case.machine.know(nvidia_proc.driver)
    if driver.loaded and not driver.flavour and driver.why:
        why = f"Whether the open kernel modules are loaded is not known: {driver.why}."
        return finding.unknown(release[:45], why=why)
    # Red Hat's 4.18 contains backports: NVIDIA/nvshmem, issue 67
    if why := _works(case.machine, maybe=maybe):
        return finding.ok(
            release[:45],
            needed="5.12 or backports",
            why=why,
            sources=_VERSION_SOURCES,
            disagree=_DISAGREE if maybe else "",
        )
    too_old = "It may be too old to share GPU memory as a dma-buf"
    effect = too_old if maybe else "No device accepts GPU memory as a dma-buf"
    return finding.warn(
        release[:45],
        needed="6.2 or later" if maybe else "5.12; best 6.2 or later",
        why=f"{effect}; the alternative is nvidia-peermem.",
        remedy=_install_newer_kernel(case.machine),
        sources=_VERSION_SOURCES,
        disagree=_DISAGREE if maybe else "",
    )


def _works(machine: Machine, *, maybe: bool) -> str:
    """Return a sentence if tests showed that dma-bufs work despite an old kernel, else "".

    All GPUs have to export dma-bufs, and an RDMA device has to accept them. Without RDMA devices,
    `maybe` has to be true: the kernel may support dma-bufs.
    """
    dma_bufs = [gpudirect.dma_buf(machine, gpu) for gpu in gpus.usable(machine)]
    if not dma_bufs or not all(dma_buf.reported and dma_buf.works for dma_buf in dma_bufs):
        return ""
    models = {nic.model: nic.name for nic in reversed(machine.know(rdma.devices).devices)}
    answers = [machine.read.probe("rdma-dmabuf", name).data for name in models.values()]
    if any(isinstance(data, Mapping) and data.get("takes") is True for data in answers):
        return "CUDA exports a dma-buf, and an RDMA device accepts it: both were tested."
    alone = maybe and not models and not machine.know(rdma.devices).why
    return "CUDA exports a dma-buf; there is no RDMA device that could refuse it." if alone else ""


def _install_newer_kernel(machine: Machine) -> list[str]:
    """Return the commands that install a kernel 6.2 or later, by distribution."""
    if host := machine.know(foreign_host):
        return [f"# Install a kernel 6.2 or later of the host's system, {host}, and boot it"]
    release = machine.know(os_release)
    name, number = release.get("ID", "").lower(), release.get("VERSION_ID", "")
    like = {name, *release.get("ID_LIKE", "").lower().split()}
    flavour = machine.know(uname).release.rpartition("-")[2]
    if name == "ubuntu" and flavour in ("aws", "azure", "gcp", "oracle", "nvidia", "64k"):
        return [f"# Use a later kernel of this flavour, 6.2 or later: linux-{flavour}"]
    if name == "ubuntu" and re.fullmatch(r"[2-9]\d\.\d\d", number, re.ASCII) and number >= "22.04":
        return [restart(f"sudo apt install -y linux-generic-hwe-{number}")]
    if name == "ubuntu":
        return ["# Ubuntu has it from 22.04 on: upgrade to that or a later one"]
    if name == "debian" and number == "12":
        arch = "arm64" if machine.know(uname).arm else "amd64"
        # DKMS needs the headers to build NVIDIA's modules for the new kernel
        names = f"linux-image-{arch} linux-headers-{arch}"
        return [
            "# with bookworm-backports in /etc/apt/sources.list",
            restart(f"sudo apt install -y -t bookworm-backports {names}"),
        ]
    if name == "debian":
        return ["# Debian has it from 13 on, and in the backports of 12"]
    if name == "fedora":
        return [restart("sudo dnf -y upgrade --refresh kernel kernel-devel")]
    if like & {"rhel", "centos", "fedora"}:
        return ["# Red Hat 9 has 5.14 with backports, 10 has 6.12: upgrade to 10"]
    if like & {"suse", "sles", "opensuse"}:
        return ["# SUSE has it from 15 SP6 on: upgrade to that or a later one"]
    return ["# Install a kernel 6.2 or later of your distribution, and boot it"]


_P2PDMA_SOURCES = (
    references.P2PDMA("Driver Writer's Guide"),
    references.DEVICE_PRIVATE(),
    references.OPEN_MODULES("nvidia/nv-dmabuf.c and nv-dma.c"),
)


@check(
    "kernel-p2pdma",
    "Kernel: PCI peer-to-peer DMA",
    asks="Does the kernel support DMA between two PCI devices?",
    goals=WITH_GPU,
    sides=("host",),
)
def _kernel_p2pdma(case: Case) -> Finding:
    if _lacks_p2pdma(case.machine):
        return finding.fail(
            "PCI_P2PDMA not set",
            needed="PCI_P2PDMA=y",
            why="CUDA exports no dma-buf although its modules are open: they were built for a "
            "kernel without PCI peer-to-peer DMA.",
            remedy=["# Use a kernel with CONFIG_PCI_P2PDMA=y, and NVIDIA's modules built for it"],
            sources=[*_P2PDMA_SOURCES, references.TALOS("issue 12021")],
        )
    found = case.machine.know(pci.tree).gpus
    if not found:
        return missing_device(case.machine, NO_GPU)
    others = sorted({gpu.driver for gpu in found} - {"nvidia", "vfio-pci", ""})
    known = case.machine.know(kconfig)
    if known.options and known["CONFIG_PCI_P2PDMA"] != "n":
        return finding.ok("PCI_P2PDMA=y", sources=_P2PDMA_SOURCES)
    if not others:
        state = "not set" if known.options else "not known"
        return finding.n_a(
            f"{state}; NVIDIA's driver does not need it",
            why="Only other drivers (NVMe, nouveau, vfio) and RDMA on device-private pages share "
            "device memory through it.",
        )
    if known.options:
        return finding.warn(
            "PCI_P2PDMA not set",
            needed="PCI_P2PDMA=y",
            why=f"Without it the driver {others[0]} shares no GPU memory with other devices.",
            remedy=["# Use a kernel that has it, or NVIDIA's driver, which does not need it"],
            sources=_P2PDMA_SOURCES,
        )
    return _no_config(known, "PCI_P2PDMA=y", "kernel-p2pdma", _P2PDMA_SOURCES)


def _lacks_p2pdma(machine: Machine) -> bool:
    """Return whether the option is off and CUDA exports no dma-buf despite open modules."""
    known, driver = machine.know(kconfig), machine.know(nvidia_proc.driver)
    if not known.options or known["CONFIG_PCI_P2PDMA"] != "n" or driver.flavour != "open":
        return False
    if machine.know(peermem_state) == "loaded" or version_key(driver.version) < (515,):
        return False
    dma_bufs = [
        gpudirect.dma_buf(machine, gpu)
        for gpu in gpus.usable(machine)
        if gpudirect.kind(machine, gpu).direct
    ]
    return any(one.reported and one.works is False and not one.why for one in dma_bufs)


@check(
    "kernel-hmm",
    "Kernel: HMM",
    asks="Can a GPU use a process's ordinary memory? Nothing in CUDA or dgkit needs it.",
    goals={Goal.RDMA, Goal.GPUNETIO},
    sides=("host",),
    requires=[device(lambda case: case.machine.know(pci.tree).gpus, NO_GPU)],
)
def _kernel_hmm(case: Case) -> Finding:
    known = case.machine.know(kconfig)
    sources = (references.HMM(), references.CUDA_HMM(), references.DEVICE_PRIVATE())
    names = ("HMM_MIRROR", "DEVICE_PRIVATE")
    off = [name for name in names if known[f"CONFIG_{name}"] == "n"]
    if known.options and not off:
        return finding.ok("HMM_MIRROR=y, DEVICE_PRIVATE=y", sources=sources)
    if known.options or not known.denied:
        return finding.n_a(
            f"{' and '.join(off)} not set" if known.options else "not known; nothing needs it",
            why="GPU kernels cannot use memory of malloc, and RDMA on device-private pages does "
            "not work. All other memory works.",
        )
    return _no_config(known, "HMM_MIRROR=y, DEVICE_PRIVATE=y", "kernel-hmm", sources)


_EXAMINED = (7, 3)  # newest kernel whose hmm.h and memremap.h were searched for the patches
_PATCHES = (
    "Patches for mlx5 adapters and the GPU driver nouveau alone were under review in July 2025; "
    "no kernel up to Linux 7.3 has them. Without them such pages are moved to host memory first. "
    "RDMA to GPU memory takes a dma-buf, else nvidia-peermem."
)


@check(
    "kernel-device-private",
    "Kernel: RDMA on device-private pages",
    asks="Can RDMA reach ordinary memory that was moved to a GPU, where it is? Nothing needs it.",
    goals={Goal.RDMA},
    sides=("host",),
)
def _kernel_device_private(case: Case) -> Finding:
    version = case.machine.know(uname).version  # () if it is unknown
    text = ".".join(map(str, version))
    examined = version and version <= _EXAMINED
    return finding.n_a(
        f"not in Linux {text}" if examined else f"not known of Linux {text or '?'}",
        why=_PATCHES,
        sources=(references.DEVICE_PRIVATE_REVIEW(), references.DEVICE_PRIVATE()),
    )


def _no_config(
    known: Kconfig, needed: str, name: str, sources: tuple[references.Source, ...]
) -> Finding:
    return finding.unknown(
        "no config of this kernel",
        needed=needed,
        why=finding.sentence(known.why),
        remedy=[as_root(name)] if known.denied else [],
        sources=sources,
    )
