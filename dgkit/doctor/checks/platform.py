# SPDX-License-Identifier: Apache-2.0
"""Machines without GPUDirect: DGX Spark and others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import finding, references
from ..facts import cuda, gpudirect, gpus, kernel_log, pairs, pci, pci_ids
from ..facts.distribution import restart
from ..facts.gpudirect import Kind
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..facts.uname import uname
from ..finding import Finding, sentence
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import gpu_present, pci_unread
from ..registry import check
from ._devices import per_gpu, smi_command

_AMAZON = 0x1D0F
_CONNECTX8 = frozenset({0x1023, 0x1025})  # PCI ID list, vendor 15b3: ConnectX-8, ConnectX-9
_PINNED = "# Use pinned memory: dgkit.empty(..., on='pinned')"
_VGPU = references.AI_ENTERPRISE("GPUDirect RDMA and GPUDirect Storage")
_SHARED = (
    "PCIe devices cannot access GPU memory coherently: dma-buf, nvidia-peermem and GDRCopy do not "
    "work. Pinned memory is no slower: CPU and GPU share it."
)
_WITHOUT = {
    Kind.SPARK: (
        _SHARED,
        (
            references.DGX_SPARK("GPUDirect RDMA"),
            references.GPUNETIO("GPUNetIO Installation and Setup"),
        ),
    ),
    Kind.TEGRA: (
        "CPU and GPU share one memory, which devices reach if it was allocated as pinned.",
        (references.GPUDIRECT("Porting to Tegra (CUDA 13.0)"),),
    ),
    Kind.GEFORCE: (
        "NVIDIA offers GPUDirect RDMA on data-centre and professional GPUs only.",
        (references.GPUDIRECT("Supported Systems"),),
    ),
}


@check(
    "gpudirect-platform",
    "GPUDirect on this machine",
    asks="Can other devices reach GPU memory on this machine at all?",
    goals=WITH_GPU,
    sides=("host",),
    requires=[gpu_present],
)
@per_gpu
def _gpudirect_platform(case: Case, gpu: Gpu) -> Finding:
    kind = gpudirect.kind(case.machine, gpu)
    found = gpu.name or kind.value
    # CUDA reports GPUDirect by peermem or dma-buf; None if it was not queried
    names = ("GPU_DIRECT_RDMA_SUPPORTED", "DMA_BUF_SUPPORTED")
    values = [cuda.attribute(case.machine, gpu, name) for name in names]
    supported = None if values == [None, None] else any(values)
    source: Sequence[references.Source] = [references.GPUDIRECT("Supported Systems")]
    if supported is False or (supported is None and not kind.direct):
        why, source = _WITHOUT.get(
            kind,
            (
                "CUDA reports that this GPU has no GPUDirect here.",
                (references.GPUDIRECT("Device Attribute"),),
            ),
        )
        remedy = [_PINNED]
        if case.goal is Goal.GPUNETIO:
            remedy = [
                "# Allocate queues and data as DOCA_GPU_MEM_TYPE_CPU_GPU, with CPU proxy mode:",
                "# doca_eth_rxq_gpu_set_rq_mem_type, doca_eth_txq_gpu_set_sq_mem_type,",
                "# doca_eth_txq_gpu_set_uar_on_cpu",
            ]
        shared = kind in (Kind.SPARK, Kind.TEGRA)  # pinned memory is as fast there
        make = finding.warn if shared or case.goal is Goal.GPUNETIO else finding.fail
        found = f"{found}: no GPUDirect"
        return make(found, needed="GPUDirect", why=why, remedy=remedy, sources=source)
    if without := _efa_only(case):
        return without
    if supported is None and gpu.virtualization.upper() == "VGPU":
        why = "Only some vGPUs and guest systems have GPUDirect, and CUDA was not queried."
        info = ["dgkit info"]
        return finding.unknown(f"{found}, a vGPU", why=why, remedy=info, sources=[_VGPU])
    if kind is Kind.GRACE:
        nics = case.machine.know(pci.tree).nics
        connectx8 = any(nic.vendor == pci_ids.MELLANOX and nic.device in _CONNECTX8 for nic in nics)
        source = [references.GRACE_CX8("Reference Code")]
        if connectx8 and (0,) < case.machine.know(uname).version < (6, 14):
            why = "A ConnectX-8 reaches GPU memory through its Data Direct interface, which needs "
            why += "NVIDIA's kernel 6.14 or later."
            do = [restart("sudo apt install -y linux-nvidia-64k-6.14")]
            return finding.warn(found, needed="Linux 6.14", why=why, remedy=do, sources=source)
        return finding.ok(f"{found}, coherent with the CPU", needed="GPUDirect", sources=source)
    if supported is None and not gpu.name:
        why = "Neither the driver nor nvidia-smi names the GPU."
        return finding.unknown(
            "?", why=why, remedy=smi_command(case.machine, "nvidia-smi -L"), sources=source
        )
    return _judge_vmm(case.machine, gpu, found) or finding.ok(
        f"{found}, {kind.value}", needed="GPUDirect", sources=source
    )


# EC2 types with EFA and NVIDIA GPUs but without GPUDirect, which is available from p4d on.
_EC2 = re.compile(r"(?:g4dn|g5|g6|g6e|gr6|p3dn)\.\w+")


def _efa_only(case: Case) -> Finding | None:
    """Return a failure on an EC2 instance whose EFA cannot access GPU memory, else None."""
    product = case.machine.read.text("/sys/class/dmi/id/product_name").text.strip()
    nics = pairs.peers(case.machine, case.goal)
    if not nics or any(nic.vendor != _AMAZON for nic in nics) or not _EC2.fullmatch(product):
        return None
    return finding.fail(
        f"{product}: no GPUDirect",
        needed="an instance type from p4d on",
        why="The GPU has GPUDirect, but EFA does not reach its memory on this type of instance: "
        "data passes host memory.",
        remedy=["# Use an instance of the types p4d, p5 or p6, or RDMA to host memory"],
        sources=[references.EFA_NCCL("issue 547")],
    )


_FD_EXPORT = ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")


def _judge_vmm(machine: Machine, gpu: Gpu, found: str) -> Finding | None:
    """Return a warning if CUDA virtual memory cannot be exported or lacks GPUDirect, else None."""
    source = [references.CUDA_DRIVER_API("CUdevice_attribute")]
    if any(cuda.attribute(machine, gpu, name) == 0 for name in _FD_EXPORT):
        found, remedy = f"{found}: no shareable memory", [_PINNED]
        why = (
            "CUDA cannot export virtual memory as a POSIX fd here, as on some vGPUs: dgkit cannot "
        )
        why += "allocate GPU memory."
    elif cuda.attribute(machine, gpu, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED") == 0:
        found = f"{found}: not for virtual memory"
        remedy = ["# Use memory of CuPy's own pool instead: cupy.empty(...), then wrap it"]
        why = "CUDA's virtual memory, which dgkit.empty(on='gpu') uses, has no GPUDirect here."
    else:
        return None
    return finding.warn(found, needed="GPUDirect", why=why, remedy=remedy, sources=source)


_AMD = 0x1002
_DISPLAY = 0x0300  # class of a GPU with a display; others are for computing
_MUCH = 4 << 30  # bytes of a window that no integrated GPU has


def _unjudged(machine: Machine) -> list[str]:
    """Return the AMD GPUs that are there for computing: several, large, without a display, refused.

    One integrated GPU of a laptop is none of these.
    """
    errors = machine.know(kernel_log.log).errors
    every = [
        device
        for device in machine.know(pci.tree).devices.values()
        if device.vendor == _AMD and device.kind >> 8 in (0x03, 0x12)
    ]

    def computes(device: pci.PciDevice) -> bool:
        resource = machine.read.text(f"{pci.DEVICES}/{device.address}/resource").text
        first = gpus.window_sizes(resource)[:1]
        return (
            device.kind != _DISPLAY
            or any(size >= _MUCH for size in first)
            or any(line.about(device.address) for line in errors)
        )

    several = len(every) > 1
    return [device.address for device in every if several or computes(device)]


def _not_pci(machine: Machine) -> Finding | None:
    """Return "unknown" for a GPU that is no PCI device and was not reached, else None."""
    listed = machine.know(smi)
    if listed.gpus:
        return None
    if machine.know(uname).wsl and listed.trouble != "absent":
        why = f"Windows shares a GPU, and nvidia-smi does not list it: {listed.why}"
        do = ["# In Windows: nvidia-smi; then wsl --update, and wsl --shutdown."]
        return finding.unknown("one of Windows", needed="nvidia-smi", why=sentence(why), remedy=do)
    if machine.know(uname).release.endswith("-tegra"):
        why = "The GPU of a Tegra is not a PCI device: whether CUDA works is not known."
        return finding.unknown(
            "one of a Tegra", needed="checks for it", why=why, remedy=["tegrastats"]
        )
    return None


@check(
    "other-gpus",
    "GPUs that are not judged",
    asks="Are there GPUs that the doctor does not judge, or were the PCI devices not read?",
    goals=[Goal.LAPTOP],
    sides=("host",),
    sources=[references.SYSFS_PCI("")],
)
def _other_gpus(case: Case) -> Finding:
    if why := pci_unread(case.machine):
        return finding.unknown(
            "PCI devices not read", needed="their list", remedy=["lspci -nn -D"],
            why=f"Whether there is a GPU is not known. {why}",
        )  # fmt: skip
    if not_pci := _not_pci(case.machine):
        return not_pci
    found = case.machine.know(_unjudged)
    if not found:
        return finding.n_a("none")
    errors = case.machine.know(kernel_log.log).errors
    said = [line.text for line in errors if any(line.about(address) for address in found)]
    return finding.unknown(
        f"{len(found)} of AMD",
        needed="checks for them",
        remedy=["rocminfo", "rocm-smi --showtopo"],
        why="NVIDIA's GPUs alone are judged: whether these work is not known."
        + (f" {kernel_log.quoted(said)}" if said else ""),
    )
