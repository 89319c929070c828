"""nvidia-peermem, the older way of mapping GPU memory for a NIC."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc
from ..facts.peermem import lacking
from ..facts.system import install, os_release, restart
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import nothing

_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using nvidia-peermem"),
    references.GPUDIRECT("Using nvidia-peermem"),
    references.GPUDIRECT("Changes in CUDA 13.0, Deprecation Notice: NV-P2P API Support"),
)
_DEPRECATED = (
    "CUDA 13.0 calls the interface under it (NV-P2P) deprecated: dma-buf is to come after it."
)
_REFUSED = (
    "# 'Invalid argument': it was built for another ib_core. Install MLNX_OFED or DOCA-OFED, then "
    "NVIDIA's driver again."
)
_FROM = (
    "The GPUNetIO guide says that the module comes with the CUDA toolkit, the GPU Operator's "
    "documentation that it comes with the driver, from R470 on."
)


@check("peermem", "nvidia-peermem", goals=WITH_GPU, sides=("host",))
def peermem(case: Case) -> Iterator[Finding]:
    """Can GPU memory be mapped by nvidia-peermem, where there is no dma-buf?"""
    machine = case.machine
    state = machine.know(gpudirect.peermem)
    found = gpus.usable(machine)
    direct = any(gpudirect.kind(machine, gpu).direct for gpu in found)
    works = {gpudirect.dma_buf(machine, gpu).works for gpu in found}
    empty = nothing(case)
    if empty is not None:
        yield empty
    elif not direct:
        yield finding.n_a("not on this machine: see gpudirect-platform")
    elif state == "loaded":
        needed = "where there is no dma-buf"
        yield finding.ok("loaded", needed=needed, why=_DEPRECATED, sources=_SOURCES)
    elif works == {True}:
        yield finding.n_a(f"{'not loaded' if state else 'not read'}; dma-buf does without")
    elif state and False in works:
        yield _blocks(machine, state)
    else:
        yield finding.unknown(
            {"loadable": "installed, not loaded", "absent": "not installed"}.get(state, "?"),
            needed="where there is no dma-buf",
            why="Whether it is installed is not known."
            if not state
            else "Whether dma-buf works is not known: without it, this module is needed.",
            remedy=["sudo modprobe nvidia-peermem"],
            sources=_SOURCES,
        )


def _without_interface(machine: Machine, state: str) -> Finding:
    remedy = [
        install(machine, "doca-ofed", "doca-ofed"),
        "# Then install NVIDIA's driver again: it builds the module.",
        "sudo modprobe nvidia-peermem",
    ]
    if machine.know(os_release).get("ID", "").lower() == "ubuntu":
        remedy.append("# or: NVIDIA's kernel for Ubuntu, which keeps the interface")
        remedy.append(restart("sudo apt install -y linux-nvidia"))
    return finding.fail(
        "installed, not loaded" if state == "loadable" else "not installed",
        needed="loaded",
        why="This kernel has no interface for it, which MLNX_OFED or DOCA-OFED brings: modprobe "
        "says 'Invalid argument'. Of Ubuntu's own kernels those before 6.8 have one.",
        remedy=remedy,
        sources=[*_SOURCES, references.UBUNTU_PEERMEM()],
        disagree="The GPUNetIO guide asks for `modprobe nvidia-peermem` alone; Ubuntu says that "
        "its kernels from 6.8 on take it with MLNX_OFED or as linux-nvidia only.",
    )


def _blocks(machine: Machine, state: str) -> Finding:
    if machine.know(lacking):
        return _without_interface(machine, state)
    core = machine.know(nvidia_proc.modules)
    lacks = core is not None and "ib_core" not in core
    ofed = install(machine, "doca-ofed", "doca-ofed")
    if state == "absent":
        found, why = "not installed", "The driver was installed without it."
        remedy = [ofed, "# Then install NVIDIA's driver again: it builds the module."]
    else:
        found, why = "installed, not loaded", "There is no dma-buf, so a NIC needs this module."
        remedy = [*([ofed] if lacks else []), "sudo modprobe nvidia-peermem", _REFUSED]
    if lacks:
        why += " It plugs into ib_core of MLNX_OFED or DOCA-OFED, which is not loaded."
    return finding.fail(
        found, needed="loaded", why=why, remedy=remedy, sources=_SOURCES, disagree=_FROM
    )
