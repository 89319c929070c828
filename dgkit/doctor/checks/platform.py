"""Machines that have no GPUDirect: DGX Spark and others."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import cuda, gpudirect, pci
from ..facts.gpudirect import Kind
from ..facts.gpus import Gpu
from ..facts.system import restart
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import by_smi, each

_CONNECTX8 = frozenset({0x1023, 0x1025})  # PCI ID list, vendor 15b3: ConnectX-8, ConnectX-9
_PINNED = "# Use pinned memory: dgkit.empty(..., on='pinned')"
_VGPU = references.AI_ENTERPRISE("GPUDirect RDMA and GPUDirect Storage")
_SHARED = (
    "GPU memory cannot be reached coherently by PCIe devices: dma-buf, nvidia-peermem and GDRCopy "
    "do not work. Pinned memory is as near: CPU and GPU share it."
)
_NO = {
    Kind.SPARK: (
        _SHARED,
        (
            references.DGX_SPARK("GPUDirect RDMA"),
            references.GPUNETIO("GPUNetIO Installation and Setup"),
        ),
    ),
    Kind.TEGRA: (
        "CPU and GPU share one memory, and devices reach it where it was allocated as pinned.",
        (references.GPUDIRECT("Porting to Tegra (CUDA 13.0)"),),
    ),
    Kind.GEFORCE: (
        "NVIDIA offers GPUDirect RDMA on data-centre and professional GPUs only.",
        (references.GPUDIRECT("Supported Systems"),),
    ),
}


@check("gpudirect-platform", "GPUDirect on this machine", goals=WITH_GPU, sides=("host",))
def platform(case: Case) -> Iterator[Finding]:
    """Is this a machine on which other devices may reach GPU memory at all?"""

    def judge(gpu: Gpu) -> Finding:
        kind = gpudirect.kind(case.machine, gpu)
        found = gpu.name or kind.value
        says = _says(case.machine, gpu)
        source: list[references.Source] = [references.GPUDIRECT("Supported Systems")]
        if says is False or (says is None and not kind.direct):
            return _without(found, kind, case.goal)
        if says is None and gpu.virtualization.upper() == "VGPU":
            why = "GPUDirect is there on some vGPUs and guest systems only, and CUDA was not asked."
            ask = ["dgkit info"]
            return finding.unknown(f"{found}, a vGPU", why=why, remedy=ask, sources=[_VGPU])
        if kind is Kind.GRACE:
            return _coherent(found, case.machine)
        if says is None and not gpu.name:
            why = "Neither the driver nor nvidia-smi names the GPU."
            return finding.unknown(
                "?", why=why, remedy=by_smi(case.machine, "nvidia-smi -L"), sources=source
            )
        return _virtual(case.machine, gpu, found) or finding.ok(
            f"{found}, {kind.value}", needed="GPUDirect", sources=source
        )

    yield from each(case, judge, driver=False)


def _says(machine: Machine, gpu: Gpu) -> bool | None:
    """What CUDA says of GPUDirect, by nvidia-peermem or by dma-buf; None if it was not asked."""
    names = ("GPU_DIRECT_RDMA_SUPPORTED", "DMA_BUF_SUPPORTED")
    values = [cuda.attribute(machine, gpu, name) for name in names]
    return None if values == [None, None] else any(values)


_SHARED_FD = ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")


def _virtual(machine: Machine, gpu: Gpu, found: str) -> Finding | None:
    """What to say where CUDA's virtual memory lacks what dgkit.empty(on='gpu') is made with."""
    source = [references.CUDA_DRIVER_API("CUdevice_attribute")]
    if any(cuda.attribute(machine, gpu, name) == 0 for name in _SHARED_FD):
        found, remedy = f"{found}: no memory that is shared", [_PINNED]
        why = "CUDA has no virtual memory with a POSIX fd here, as on some vGPUs: dgkit allocates "
        why += "no GPU memory."
    elif cuda.attribute(machine, gpu, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED") == 0:
        found = f"{found}: not for virtual memory"
        remedy = ["# Lend memory of CuPy's own pool instead: cupy.empty(...), then wrap it"]
        why = (
            "CUDA's virtual memory, of which dgkit.empty(on='gpu') is made, has no GPUDirect here."
        )
    else:
        return None
    return finding.warn(found, needed="GPUDirect", why=why, remedy=remedy, sources=source)


def _without(found: str, kind: Kind, goal: Goal) -> Finding:
    why, source = _NO.get(
        kind,
        (
            "CUDA says that this GPU has no GPUDirect here.",
            (references.GPUDIRECT("Device Attribute"),),
        ),
    )
    remedy = [_PINNED]
    if goal is Goal.GPUNETIO:
        remedy = [
            "# Allocate queues and data as DOCA_GPU_MEM_TYPE_CPU_GPU, with CPU proxy mode:",
            "# doca_eth_rxq_gpu_set_rq_mem_type, doca_eth_txq_gpu_set_sq_mem_type,",
            "# doca_eth_txq_gpu_set_uar_on_cpu",
        ]
    shared = kind in (Kind.SPARK, Kind.TEGRA)  # then pinned memory is all the memory there is
    say = finding.warn if shared or goal is Goal.GPUNETIO else finding.fail
    return say(f"{found}: no GPUDirect", needed="GPUDirect", why=why, remedy=remedy, sources=source)


def _coherent(found: str, machine: Machine) -> Finding:
    """Grace has no PCIe ATS; beside a ConnectX-8 a newer kernel makes up for it."""
    nics = machine.know(pci.tree).nics
    near = any(one.vendor == pci.MELLANOX and one.device in _CONNECTX8 for one in nics)
    source = [references.GRACE_CX8("Reference Code")]
    if near and (0,) < machine.know(uname).version < (6, 14):
        why = "A ConnectX-8 reaches GPU memory through its Data Direct interface, which takes "
        why += "NVIDIA's kernel 6.14 or later."
        do = [restart("sudo apt install -y linux-nvidia-64k-6.14")]
        return finding.warn(found, needed="Linux 6.14", why=why, remedy=do, sources=source)
    return finding.ok(f"{found}, coherent with the CPU", needed="GPUDirect", sources=source)
