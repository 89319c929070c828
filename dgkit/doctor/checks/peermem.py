"""nvidia-peermem, the older interface for mapping GPU memory for a NIC."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc
from ..facts.distribution import install, os_release, restart
from ..facts.peermem import lacks_interface, peermem_state, trouble
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import not_applicable

_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using nvidia-peermem"),
    references.GPUDIRECT("Using nvidia-peermem"),
    references.GPUDIRECT("Changes in CUDA 13.0, Deprecation Notice: NV-P2P API Support"),
)
_PEER_MEMORY = references.OPEN_MODULES("nvidia-peermem/nvidia-peermem.c")
_DEPRECATED = "CUDA 13.0 deprecates the interface below it (NV-P2P) in favour of dma-buf."
_INVALID_ARGUMENT = (
    "# On 'Invalid argument': it was built for another ib_core. Install MLNX_OFED or DOCA-OFED, "
    "then reinstall NVIDIA's driver."
)
_ORIGIN_DISAGREES = (
    "The GPUNetIO guide says that the module comes with the CUDA toolkit, the GPU Operator's "
    "documentation that it comes with the driver, from R470 on."
)


@check(
    "peermem",
    "nvidia-peermem",
    asks="Can nvidia-peermem map GPU memory if there is no dma-buf?",
    goals=WITH_GPU,
    sides=("host",),
)
def _peermem(case: Case) -> Iterator[Finding]:
    machine = case.machine
    state = machine.know(peermem_state)
    found = gpus.usable(machine)
    direct = any(gpudirect.kind(machine, gpu).direct for gpu in found)
    works = {gpudirect.dma_buf(machine, gpu).works for gpu in found}
    missing = not_applicable(case)
    if missing is not None:
        yield missing
    elif not direct:
        yield finding.n_a("not on this machine: see gpudirect-platform")
    elif state == "loaded":
        needed = "if there is no dma-buf"
        yield finding.ok("loaded", needed=needed, why=_DEPRECATED, sources=_SOURCES)
    elif works == {True}:
        yield finding.n_a(f"{_STATES.get(state, 'not read')}; dma-buf does not need it")
    elif state == "unregistered":
        yield _unregistered()
    elif state and False in works:
        yield _not_loaded(machine, state)
    else:
        yield finding.unknown(
            _STATES.get(state, "?"),
            needed="if there is no dma-buf",
            why="Whether it is installed is not known."
            if not state
            else "Whether dma-buf works is not known; if it does not, this module is needed.",
            remedy=["sudo modprobe nvidia-peermem"],
            sources=_SOURCES,
        )


_STATES = {
    "loadable": "installed, not loaded",
    "absent": "not installed",
    "unregistered": "loaded, not registered",
}
_REBUILD = "# Reinstall NVIDIA's driver: it builds the module for the ib_core that is installed."


def _unregistered() -> Finding:
    return finding.fail(
        _STATES["unregistered"],
        needed="registered with ib_core",
        why="The module is loaded, but ib_core does not know it: registering GPU memory fails with "
        "'Bad address'. It was built for another ib_core.",
        remedy=["sudo modprobe -r nvidia-peermem", _REBUILD, "sudo modprobe nvidia-peermem"],
        sources=[*_SOURCES, _PEER_MEMORY],
    )


def _cannot_load(machine: Machine, trouble: str) -> Finding:
    """Return the finding on a module that modprobe refuses, although the kernel has ib_core."""
    refused = trouble == "refused"
    found = "refused by ib_core (err -22)" if refused else "built without ib_core"
    why = "There is no dma-buf, so a NIC needs this module, and modprobe ends with 'Invalid "
    why += "argument': it was built "
    why += "for another ib_core." if refused else "when there was no ib_core with peer memory."
    ofed = machine.read.run("ofed_info", "-s")
    first = [] if ofed.ok and ofed.code == 0 else [install(machine, "doca-ofed", "doca-ofed")]
    return finding.fail(
        found,
        needed="loaded",
        why=why,
        remedy=[*first, _REBUILD, "sudo modprobe nvidia-peermem"],
        sources=[*_SOURCES, _PEER_MEMORY],
        disagree=_ORIGIN_DISAGREES,
    )


def _without_interface(machine: Machine, state: str) -> Finding:
    remedy = [
        install(machine, "doca-ofed", "doca-ofed"),
        "# Then reinstall NVIDIA's driver: it builds the module.",
        "sudo modprobe nvidia-peermem",
    ]
    if machine.know(os_release).get("ID", "").lower() == "ubuntu":
        remedy.append("# or: NVIDIA's kernel for Ubuntu, which still has the interface")
        remedy.append(restart("sudo apt install -y linux-nvidia"))
    return finding.fail(
        _STATES[state],
        needed="loaded",
        why="This kernel has no interface for it, so modprobe fails with 'Invalid argument'; "
        "MLNX_OFED or DOCA-OFED adds it. Ubuntu's own kernels before 6.8 have it.",
        remedy=remedy,
        sources=[*_SOURCES, references.UBUNTU_PEERMEM()],
        disagree="The GPUNetIO guide requires only `modprobe nvidia-peermem`; Ubuntu says that its "
        "kernels from 6.8 on support it only with MLNX_OFED or as linux-nvidia.",
    )


def _not_loaded(machine: Machine, state: str) -> Finding:
    if machine.know(lacks_interface):
        return _without_interface(machine, state)
    if state == "loadable" and (why_not := machine.know(trouble)):
        return _cannot_load(machine, why_not)
    core = machine.know(nvidia_proc.modules)
    lacks = core is not None and "ib_core" not in core
    ofed = install(machine, "doca-ofed", "doca-ofed")
    if state == "absent":
        found, why = "not installed", "The driver was installed without it."
        remedy = [ofed, "# Then reinstall NVIDIA's driver: it builds the module."]
    else:
        found, why = "installed, not loaded", "There is no dma-buf, so a NIC needs this module."
        remedy = [*([ofed] if lacks else []), "sudo modprobe nvidia-peermem", _INVALID_ARGUMENT]
    if lacks:
        why += " It needs ib_core of MLNX_OFED or DOCA-OFED, which is not loaded."
    return finding.fail(
        found, needed="loaded", why=why, remedy=remedy, sources=_SOURCES, disagree=_ORIGIN_DISAGREES
    )
