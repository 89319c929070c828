# SPDX-License-Identifier: Apache-2.0
"""dma-buf: GPU memory exported as a file descriptor."""

from __future__ import annotations

from .. import finding, references
from ..facts import cuda, gpudirect, gpus, nvidia_proc, pairs
from ..facts.distribution import install_driver
from ..facts.gpus import Gpu
from ..facts.peermem import lacks_interface, peermem_state, trouble
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..prerequisites import driver_loaded, gpu_present, missing_device
from ..registry import check
from ._devices import per_gpu

_HOST = ("host",)
_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using dmabuf"),
    references.GPU_OPERATOR("GPUDirect RDMA, Prerequisites"),
)
_KERNELS = (
    "The GPUNetIO guide requires Linux 6.2 for a dma-buf; the GPU Operator's documentation 5.12, "
    "from which RDMA devices accept one."
)


@check(
    "dmabuf-gpu",
    "dma-buf of GPU memory",
    asks="Does CUDA export GPU memory as a dma-buf?",
    goals=WITH_GPU,
    sides=_HOST,
    sources=_SOURCES,
    needed="yes",
    requires=[gpu_present, driver_loaded],
)
@per_gpu
def _dmabuf_gpu(case: Case, gpu: Gpu) -> Finding:
    machine = case.machine
    both = _KERNELS if (5, 12) <= machine.know(uname).version < (6, 2) else ""
    dma_buf = gpudirect.dma_buf(machine, gpu)
    if dma_buf.works is None:
        why = machine.know(cuda.cuda).why
        return finding.unknown(
            "?", why=f"{dma_buf.why}{f' ({why})' if why else ''}.", remedy=["dgkit info"]
        )
    if dma_buf.works:
        found = "yes, according to CUDA" if dma_buf.reported else "expected"
        why = "" if dma_buf.reported else f"CUDA was not queried; it follows from: {dma_buf.why}."
        return finding.ok(found, why=why, disagree=both)
    if not pairs.peers(machine, case.goal):
        return missing_device(machine, "no NIC or DPU that would use it")
    if gpudirect.kind(machine, gpu).direct and machine.know(peermem_state) == "loaded":
        return finding.n_a(
            "no; nvidia-peermem is loaded instead",
            why=finding.sentence(dma_buf.why or "CUDA reports none"),
        )
    cause = dma_buf.why or "CUDA reports none although the kernel modules are open"
    peermem, direct = machine.know(peermem_state), gpudirect.kind(machine, gpu).direct
    instead = {
        "loaded": "The alternative, nvidia-peermem, is loaded.",
        "unregistered": "The alternative, nvidia-peermem, is loaded but not registered.",
        "loadable": "The alternative, nvidia-peermem, is installed but not loaded.",
        "absent": "The alternative, nvidia-peermem, is not installed either.",
    }.get(peermem, "Whether the alternative, nvidia-peermem, is installed is not known.")
    unusable = peermem in ("loadable", "absent", "unregistered")
    make = finding.fail if direct and unusable else finding.warn
    return make(
        "no, according to CUDA" if dma_buf.reported else "not expected",
        why=f"{finding.sentence(cause)} {instead if direct else 'Use pinned memory instead.'}",
        remedy=_remedy(machine, peermem=direct and peermem in ("loadable", "unregistered")),
    )


def _remedy(machine: Machine, *, peermem: bool) -> list[str]:
    """Return the remedies, the least invasive first, separated by `# or:`."""
    closed = machine.know(nvidia_proc.driver).flavour == "closed"
    ways = [["# Pinned memory needs neither: dgkit.empty(..., on='pinned')"]]
    if peermem:
        more = "# nvidia-peermem needs more than its module here: dgkit doctor peermem"
        plain = machine.know(peermem_state) == "loadable" and not machine.know(trouble)
        plain &= not machine.know(lacks_interface)
        ways.insert(0, ["sudo modprobe nvidia-peermem" if plain else more])
    if closed and not machine.know(gpudirect.before_turing):
        ways.append(install_driver(machine))
    return [line for at, way in enumerate(ways) for line in (["# or:"] if at else []) + way]


@check(
    "dmabuf-mmap",
    "dma-buf mapped by the CPU",
    asks="Can the CPU map a dma-buf of GPU memory? Nothing needs it.",
    goals=WITH_GPU,
    sides=_HOST,
    requires=[gpu_present, driver_loaded],
)
def _dmabuf_mmap(case: Case) -> Finding:
    source = [references.CUDA_DRIVER_API("CUdevice_attribute, DMA_BUF_MMAP_SUPPORTED")]
    supported = {
        cuda.attribute(case.machine, gpu, "DMA_BUF_MMAP_SUPPORTED")
        for gpu in gpus.usable(case.machine)
    }
    if supported == {1}:
        return finding.ok("yes", sources=source)
    return finding.n_a("no, and nothing needs it" if 0 in supported else "not known to this driver")
