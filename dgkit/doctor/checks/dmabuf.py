"""dma-buf: whether GPU memory can be had as an fd, and who takes it."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import cuda, gpudirect, gpus, nvidia_proc
from ..facts.gpudirect import DmaBuf
from ..facts.gpus import Gpu
from ..facts.peermem import lacking
from ..facts.system import driver_anew
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import each, nothing

_HOST = ("host",)
_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using dmabuf"),
    references.GPU_OPERATOR("GPUDirect RDMA, Prerequisites"),
)
_KERNELS = (
    "The GPUNetIO guide asks for Linux 6.2 before it uses a dma-buf, the GPU Operator's "
    "documentation for 5.12, in which RDMA devices learned to take one."
)


@check("dmabuf-gpu", "dma-buf of GPU memory", goals=WITH_GPU, sides=_HOST)
def gpu_memory(case: Case) -> Iterator[Finding]:
    """Does CUDA give GPU memory as a dma-buf?"""
    machine = case.machine
    both = _KERNELS if (5, 12) <= machine.know(uname).version < (6, 2) else ""

    def judge(gpu: Gpu) -> Finding:
        one = gpudirect.dma_buf(machine, gpu)
        if one.works is None:
            return _not_known(one, machine)
        if one.works:
            found = "yes, says CUDA" if one.asked else "to be expected"
            why = "" if one.asked else f"CUDA was not asked; it follows from: {one.why}."
            return finding.ok(found, needed="yes", why=why, sources=_SOURCES, disagree=both)
        return _none(one, machine, gpu)

    yield from each(case, judge)


def _not_known(one: DmaBuf, machine: Machine) -> Finding:
    why = machine.know(cuda.cuda).why
    return finding.unknown(
        "?",
        needed="yes",
        why=f"{one.why}{f' ({why})' if why else ''}.",
        remedy=["dgkit info"],
        sources=_SOURCES,
    )


def _none(one: DmaBuf, machine: Machine, gpu: Gpu) -> Finding:
    """A warning where another way is left: nvidia-peermem, or pinned memory by design."""
    cause = one.why or "CUDA says no although the kernel modules are open: this GPU has none"
    older, direct = machine.know(gpudirect.peermem), gpudirect.kind(machine, gpu).direct
    left = {
        "loaded": "nvidia-peermem, which is loaded, is the other way.",
        "loadable": "nvidia-peermem, the other way, is installed but not loaded.",
        "absent": "nvidia-peermem, the other way, is not installed either.",
    }.get(older, "Whether nvidia-peermem, the other way, is there is not known.")
    say = finding.fail if direct and older in ("loadable", "absent") else finding.warn
    return say(
        "no, says CUDA" if one.asked else "not to be expected",
        needed="yes",
        why=f"{finding.sentence(cause)} {left if direct else 'Use pinned memory instead.'}",
        remedy=_remedy(machine, peermem=direct and older == "loadable"),
        sources=_SOURCES,
    )


def _remedy(machine: Machine, *, peermem: bool) -> list[str]:
    """The ways out, those that change little first, with `# or:` between them."""
    closed = machine.know(nvidia_proc.driver).flavour == "closed"
    ways = [["# Pinned memory works without: dgkit.empty(..., on='pinned')"]]
    if peermem:
        more = "# nvidia-peermem takes more than its module here: dgkit doctor peermem"
        ways.insert(0, [more if machine.know(lacking) else "sudo modprobe nvidia-peermem"])
    if closed and not machine.know(gpudirect.before_turing):
        ways.append(driver_anew(machine))
    return [line for at, way in enumerate(ways) for line in (["# or:"] if at else []) + way]


@check("dmabuf-mmap", "dma-buf mapped by the CPU", goals=WITH_GPU, sides=_HOST)
def mapped(case: Case) -> Iterator[Finding]:
    """May the CPU map a dma-buf of GPU memory? Nothing needs it."""
    source = [references.CUDA_DRIVER_API("CUdevice_attribute, DMA_BUF_MMAP_SUPPORTED")]
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    known = {
        cuda.attribute(case.machine, gpu, "DMA_BUF_MMAP_SUPPORTED")
        for gpu in gpus.usable(case.machine)
    }
    if known == {1}:
        yield finding.ok("yes", sources=source)
    else:
        yield finding.n_a("no, and nothing needs it" if 0 in known else "not known to this driver")
