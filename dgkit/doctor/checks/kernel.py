"""The Linux kernel: what it must have for GPU memory to be handed to other devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .. import finding, sources
from ..facts.kconfig import Kconfig, kconfig
from ..facts.side import side
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check

_LEAST, _SURE = (5, 12), (6, 2)
_VERSION_SOURCES = (
    sources.GPUNETIO("GPU Memory Mapping, Using dmabuf"),
    sources.GPU_OPERATOR("GPUDirect RDMA, Prerequisites"),
    sources.RDMA_DMABUF(),
)
_DISAGREE = (
    "The GPUNetIO guide asks for Linux 6.2; the GPU Operator's documentation for 5.12, since when "
    "the kernel's RDMA devices take a dma-buf."
)


@check("kernel-version", "Linux kernel", goals=WITH_GPU)
def version(case: Case) -> Iterator[Finding]:
    """Is the kernel new enough to hand GPU memory on as a dma-buf?"""
    said = case.machine.read.ask("uname").data
    release = str(said.get("release", "")) if isinstance(said, Mapping) else ""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        yield finding.unknown(
            release[:40] or "?",
            needed="6.2",
            why="uname names no version.",
            sources=_VERSION_SOURCES,
        )
        return
    found, number = f"Linux {release}"[:45], (int(match[1]), int(match[2]))
    if case.machine.know(side) == "dpu":
        why = "A dma-buf is made on the host: the Arm cores' kernel does not matter for it."
        yield finding.ok(found, needed="any, on a DPU", why=why, sources=_VERSION_SOURCES)
    elif number >= _SURE:
        yield finding.ok(found, needed="6.2", sources=_VERSION_SOURCES)
    elif number >= _LEAST:
        why = "It may be too old for GPU memory as a dma-buf; nvidia-peermem is the other way."
        yield finding.warn(
            found,
            needed="6.2",
            why=why,
            remedy=_newer(case.machine),
            sources=_VERSION_SOURCES,
            disagree=_DISAGREE,
        )
    else:
        yield finding.warn(
            found,
            needed="6.2, at the least 5.12",
            why="No device takes GPU memory as a dma-buf; nvidia-peermem is the other way.",
            remedy=_newer(case.machine),
            sources=_VERSION_SOURCES,
        )


def _os_release(machine: Machine) -> dict[str, str]:
    lines = machine.read.text("/etc/os-release").text.splitlines()
    parts = (line.partition("=") for line in lines)
    return {name: value.strip("\"' ") for name, _, value in parts}


def _newer(machine: Machine) -> list[str]:
    """How a distribution comes by a kernel 6.2: of its own, or not at all."""
    said = _os_release(machine)
    name, number = said.get("ID", "").lower(), said.get("VERSION_ID", "")
    like = {name, *said.get("ID_LIKE", "").lower().split()}
    if name == "ubuntu" and number >= "22.04":
        return [f"sudo apt install linux-generic-hwe-{number[:5]}", "sudo reboot"]
    if name == "ubuntu":
        return ["# Ubuntu has it from 22.04 on", "sudo do-release-upgrade"]
    if name == "debian" and number == "12":
        arch = "arm64" if _machine(machine) == "aarch64" else "amd64"
        return [
            "# with bookworm-backports in /etc/apt/sources.list",
            f"sudo apt install -t bookworm-backports linux-image-{arch}",
            "sudo reboot",
        ]
    if name == "debian":
        return ["# Debian has it from 13 on, and in the backports of 12"]
    if name == "fedora":
        return ["sudo dnf upgrade --refresh kernel", "sudo reboot"]
    if like & {"rhel", "centos", "fedora"}:
        return ["# Red Hat's 9 has 5.14 with newer parts put in, its 10 has 6.12: take 10"]
    if like & {"suse", "sles", "opensuse"}:
        return ["# SUSE has it from 15 SP6 on: go to that or a later one"]
    return ["# Install a kernel 6.2 or later of your distribution, and boot it"]


def _machine(machine: Machine) -> str:
    said = machine.read.ask("uname").data
    return str(said.get("machine", "")) if isinstance(said, Mapping) else ""


@check("kernel-p2pdma", "Kernel: PCI peer-to-peer DMA", goals=WITH_GPU, sides=("host",))
def p2pdma(case: Case) -> Iterator[Finding]:
    """Does the kernel itself know of DMA between two PCI devices?"""
    yield _options(
        case,
        ("CONFIG_PCI_P2PDMA",),
        name="kernel-p2pdma",
        why="NVIDIA's driver maps a dma-buf without it. Other drivers (NVMe, nouveau, vfio) and "
        "RDMA on device-private pages lend a device's memory through it alone.",
        used=(
            sources.P2PDMA("Driver Writer's Guide"),
            sources.DEVICE_PRIVATE(),
            sources.OPEN_MODULES("nvidia/nv-dmabuf.c and nv-dma.c"),
        ),
    )


@check("kernel-hmm", "Kernel: HMM", goals={Goal.RDMA, Goal.GPUNETIO}, sides=("host",))
def hmm(case: Case) -> Iterator[Finding]:
    """Can the kernel share a process's plain memory with a GPU?"""
    yield _options(
        case,
        ("CONFIG_HMM_MIRROR", "CONFIG_DEVICE_PRIVATE"),
        name="kernel-hmm",
        why="Memory of CUDA and of dgkit works without. Kernels on the GPU cannot use memory of "
        "malloc, and RDMA on device-private pages is out.",
        used=(sources.HMM(), sources.CUDA_HMM(), sources.DEVICE_PRIVATE()),
    )


def _options(
    case: Case,
    names: tuple[str, ...],
    *,
    name: str,
    why: str,
    used: tuple[sources.Source, ...],
) -> Finding:
    known: Kconfig = case.machine.know(kconfig)
    needed = " and ".join(f"{one.removeprefix('CONFIG_')}=y" for one in names)
    if not known.options:
        return finding.unknown(
            "no config of this kernel",
            needed=needed,
            why=f"{known.why[:1].upper()}{known.why[1:]}.",
            remedy=[f'sudo "$(command -v dgkit)" doctor {name}'] if known.denied else [],
            sources=used,
        )
    off = [one.removeprefix("CONFIG_") for one in names if known[one] == "n"]
    if not off:
        return finding.ok(needed, needed=needed, sources=used)
    return finding.warn(
        f"{' and '.join(off)} not set",
        needed=needed,
        why=why,
        remedy=["# Take a kernel of your distribution that has it, or build one with it"],
        sources=used,
    )
