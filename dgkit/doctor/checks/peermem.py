# SPDX-License-Identifier: Apache-2.0
"""nvidia-peermem, the older interface for mapping GPU memory for a NIC."""

from __future__ import annotations

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc, pairs, pci, pci_ids
from ..facts.distribution import install_command, os_release, restart
from ..facts.doca import ofed
from ..facts.peermem import (
    is_outdated,
    is_separate,
    lacks_interface,
    other_ofed,
    peermem_state,
    trouble,
)
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..prerequisites import driver_loaded, gpu_present, gpudirect_possible, missing_device
from ..registry import check

_SOURCES = (
    references.GPUNETIO("GPU Memory Mapping, Using nvidia-peermem"),
    references.GPUDIRECT("Using nvidia-peermem"),
    references.GPUDIRECT("Changes in CUDA 13.0, Deprecation Notice: NV-P2P API Support"),
)
_PEER_MEMORY = references.OPEN_MODULES("nvidia-peermem/nvidia-peermem.c")
_NV_PEER_MEM = references.NV_PEER_MEMORY("README")
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
    sources=_SOURCES,
    needed="loaded",
    requires=[gpu_present, driver_loaded, gpudirect_possible],
)
def _peermem(case: Case) -> Finding:
    machine = case.machine
    state = machine.know(peermem_state)
    found = gpus.usable(machine)
    works = {gpudirect.dma_buf(machine, gpu).works for gpu in found}
    if state == "loaded" and False in works and machine.know(is_outdated):
        return finding.warn(
            "nv_peer_mem, outdated",
            needed="nvidia-peermem",
            why="Mellanox's nv_peer_mem is loaded, which nvidia-peermem of the driver has "
            "replaced; with it, queues in GPU memory (mlx5dv_devx_umem_reg) may fail.",
            remedy=["sudo modprobe -r nv_peer_mem", "sudo modprobe nvidia-peermem"],
            sources=[*_SOURCES, _NV_PEER_MEM, references.DEEPEP("issue 36")],
            disagree="Mellanox's README still describes it for later drivers; NVIDIA's guides do "
            "not.",
        )
    if state == "loaded":
        needed = "if there is no dma-buf"
        return finding.ok("loaded", needed=needed, why=_DEPRECATED)
    if works == {True}:
        return finding.n_a(f"{_STATES.get(state, 'not read')}; dma-buf does not need it")
    if not pairs.peers(machine, case.goal):
        return missing_device(machine, "no NIC or DPU that would use it")
    if state == "unregistered":
        return finding.fail(
            _STATES["unregistered"],
            needed="registered with ib_core",
            why="The module is loaded, but ib_core does not know it: registering GPU memory fails "
            "with 'Bad address'. It was built for another ib_core.",
            remedy=["sudo modprobe -r nvidia-peermem", _REBUILD, "sudo modprobe nvidia-peermem"],
            sources=[*_SOURCES, _PEER_MEMORY],
        )
    if state and False in works:
        return _not_loaded(machine, state)
    return finding.unknown(
        _STATES.get(state, "?"),
        needed="if there is no dma-buf",
        why="Whether it is installed is not known."
        if not state
        else "Whether dma-buf works is not known; if it does not, this module is needed.",
        remedy=["sudo modprobe nvidia-peermem"],
    )


_STATES = {
    "loadable": "installed, not loaded",
    "absent": "not installed",
    "unregistered": "loaded, not registered",
}
_REBUILD_OLD = "# Build nv_peer_mem again, for the running kernel and ib_core: ./build_module.sh"
_AT_BOOT = "echo nv_peer_mem | sudo tee /etc/modules-load.d/nv_peer_mem.conf"
_REBUILD = "# Reinstall NVIDIA's driver: it builds the module for the ib_core that is installed."


def _cannot_load(machine: Machine, trouble: str) -> Finding:
    """Return the finding on a module that modprobe refuses, although the kernel has ib_core."""
    refused = trouble == "refused"
    found = "refused by ib_core (err -22)" if refused else "built without ib_core"
    why = "There is no dma-buf, so a NIC needs this module, and modprobe ends with 'Invalid "
    why += "argument': it was built "
    why += "for another ib_core." if refused else "when there was no ib_core with peer memory."
    if other := machine.know(other_ofed):
        return finding.fail(
            "MLNX_OFED is not of this kernel",
            needed="MLNX_OFED's ib_core",
            why=f"MLNX_OFED {other} is installed, but the kernel's own drivers run: theirs has no "
            "interface for peer memory, so the module does not load.",
            remedy=[
                "# Install MLNX_OFED again, for this kernel: mlnxofedinstall --add-kernel-support",
                (
                    "# Then restart the machine: the NIC's network is down while its drivers are "
                    "changed."
                ),
                f"sudo modprobe {_module(machine)}",
            ],
            sources=[*_SOURCES, _NV_PEER_MEM],
        )
    rebuild = _REBUILD_OLD if machine.know(is_separate) else _REBUILD
    installed = machine.know(ofed).installed
    first = [] if installed else [install_command(machine, "doca-ofed", "doca-ofed")]
    return finding.fail(
        found,
        why=why,
        remedy=[*first, rebuild, f"sudo modprobe {_module(machine)}"],
        sources=[*_SOURCES, _PEER_MEMORY],
        disagree=_ORIGIN_DISAGREES,
    )


def _load(machine: Machine) -> list[str]:
    """Return the commands that load the installed module; Mellanox's own is loaded by nothing."""
    if not machine.know(is_separate):
        return ["sudo modprobe nvidia-peermem", _INVALID_ARGUMENT]
    return ["sudo modprobe nv_peer_mem", _AT_BOOT, _REBUILD_OLD]


def _module(machine: Machine) -> str:
    """Return the name of the module: Mellanox's before driver 470."""
    return "nv_peer_mem" if machine.know(is_separate) else "nvidia-peermem"


def _not_loaded(machine: Machine, state: str) -> Finding:
    nics = machine.know(pci.tree).nics
    if nics and all(nic.vendor != pci_ids.MELLANOX for nic in nics):
        return finding.fail(
            f"{_STATES[state]}, for other NICs",
            needed="dma-buf, or the NIC's own module",
            why="There is no dma-buf. This module is for drivers with NVIDIA's interface for peer "
            "memory, and no NIC here is NVIDIA's.",
            remedy=[
                "# A dma-buf needs Linux 5.12 or later and the open kernel modules: see dmabuf-gpu",
                (
                    "# Or install the module of the NIC's vendor; EFA: efa_nv_peermem, by its "
                    "installer"
                ),
            ],
        )
    if machine.know(lacks_interface):
        remedy = [
            install_command(machine, "doca-ofed", "doca-ofed"),
            "# Then reinstall NVIDIA's driver: it builds the module.",
            "sudo modprobe nvidia-peermem",
        ]
        if machine.know(os_release).get("ID", "").lower() == "ubuntu":
            remedy.append("# or: NVIDIA's kernel for Ubuntu, which still has the interface")
            remedy.append(restart("sudo apt install -y linux-nvidia"))
        return finding.fail(
            _STATES[state],
            why="This kernel has no interface for it, so modprobe fails with 'Invalid argument'; "
            "MLNX_OFED or DOCA-OFED adds it. Ubuntu's own kernels before 6.8 have it.",
            remedy=remedy,
            sources=[*_SOURCES, references.UBUNTU_PEERMEM()],
            disagree="The GPUNetIO guide requires only `modprobe nvidia-peermem`; Ubuntu says "
            "that its kernels from 6.8 on support it only with MLNX_OFED or as linux-nvidia.",
        )
    refused = machine.know(trouble)
    if refused == "refused" or (refused and state == "loadable"):
        return _cannot_load(machine, refused)
    if state == "absent" and machine.know(is_separate):
        return finding.fail(
            _STATES["absent"],
            needed="nv_peer_mem",
            why="Drivers before 470 come without nvidia-peermem; Mellanox's nv_peer_mem takes its "
            "place, with MLNX_OFED.",
            remedy=[
                "# Build and install it: github.com/Mellanox/nv_peer_memory, ./build_module.sh",
                "sudo modprobe nv_peer_mem",
            ],
            sources=[*_SOURCES, _NV_PEER_MEM],
        )
    core = machine.know(nvidia_proc.modules)
    lacks = core is not None and "ib_core" not in core
    ofed = install_command(machine, "doca-ofed", "doca-ofed")
    if state == "absent":
        found, why = "not installed", "The driver was installed without it."
        remedy = [ofed, "# Then reinstall NVIDIA's driver: it builds the module."]
    else:
        found, why = "installed, not loaded", "There is no dma-buf, so a NIC needs this module."
        remedy = [*([ofed] if lacks else []), *_load(machine)]
    if lacks:
        why += " It needs ib_core of MLNX_OFED or DOCA-OFED, which is not loaded."
    return finding.fail(found, why=why, remedy=remedy, disagree=_ORIGIN_DISAGREES)
