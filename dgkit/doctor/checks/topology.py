"""Where GPUs and NICs hang in the PCIe tree, and how near to each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from .. import finding, references
from ..facts import (
    cuda,
    data_direct,
    gpudirect,
    gpus,
    nvidia_topo,
    pairs,
    pci,
    rdma,
    topology,
    virtual,
)
from ..facts.gpudirect import Kind
from ..facts.pairs import Pair
from ..facts.system import initramfs, restart
from ..facts.topology import Near
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check

__all__ = ["nothing"]

_GUIDE = references.GPUNETIO("Installation and Setup, nvidia-smi topo -m")
_RDMA = references.GPUDIRECT("Overview, Supported Systems")
_SMI = references.NVIDIA_SMI("topo -m, Legend")
_KERNEL = references.P2PDMA("PCI Peer-to-Peer DMA Support")
_DRIVER = references.OPEN_MODULES("nvidia/nv-pci.c, nv_grdma_pci_topology_supported")


def nothing(case: Case) -> Finding | None:
    """What to say where no bytes go from GPU to NIC: one is missing, or they have no GPUDirect.

    Also where the tree cannot be read.
    """
    tree = case.machine.know(pci.tree)
    if tree.why:
        return finding.unknown("no PCI tree", why=tree.why)
    if not tree.gpus:
        return finding.n_a("no NVIDIA GPU in this machine's PCI tree")
    if not pairs.others(case.machine, case.goal):
        return finding.n_a("no NIC or DPU that could reach a GPU")
    if all(_shares(case.machine, one) for one in tree.gpus):
        return finding.n_a("no GPUDirect: CPU and GPU share their memory")
    return None


def _shares(machine: Machine, gpu: pci.PciDevice) -> bool:
    """Whether a GPU is part of the CPU, and CUDA does not say that it has GPUDirect all the same.

    Its memory is the CPU's own then: nothing goes to it from a NIC.
    """
    if _kind(machine, gpu.address) not in (Kind.SPARK, Kind.TEGRA):
        return False
    those = [one for one in machine.know(gpus.gpus) if one.address == gpu.address]
    names = ("GPU_DIRECT_RDMA_SUPPORTED", "DMA_BUF_SUPPORTED")
    return not any(cuda.attribute(machine, one, name) for one in those for name in names)


def _kind(machine: Machine, address: str) -> Kind | None:
    found = (one for one in machine.know(gpus.gpus) if one.address == address)
    return next((gpudirect.kind(machine, one) for one in found), None)


@check("topology", "PCIe topology", goals=WITH_GPU)
def near(case: Case) -> Iterator[Finding]:
    """How near is each GPU to its nearest NIC or DPU?"""
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    yield from _denied(case.machine)
    virtual_machine = case.machine.know(virtual.virtual).is_vm
    for pair in pairs.pairs(case.machine, case.goal):
        yield _guest(case.machine, pair) if virtual_machine else _judged(case.machine, pair)


def _denied(machine: Machine) -> Iterator[Finding]:
    """0 leaves the test to the driver, 1 allows all; there is a value that forbids all."""
    override = topology.override(machine)
    if override not in ("", "0", "1"):
        yield finding.warn(
            f"{topology.OVERRIDE} is {override}"[:45],
            needed="0 or 1",
            subject="NVIDIA's driver",
            why="By this setting the driver may keep every NIC and DPU from the GPU's memory.",
            remedy=[
                f"grep -rn {topology.OVERRIDE} /etc/modprobe.d",
                "# Remove it there, then:",
                restart(initramfs(machine)),
            ],
            sources=[_DRIVER],
        )


def _tested(machine: Machine) -> str:
    """What NVIDIA's driver does about two that no switch joins."""
    if topology.override(machine) == "1":
        return f"The driver's own test of the place is off ({topology.OVERRIDE}=1)."
    return (
        "On chip sets that it holds unfit NVIDIA's driver refuses two that no switch joins; then "
        "dmesg says 'topology not supported'."
    )


def _subject(machine: Machine, pair: Pair) -> str:
    return " and ".join(pairs.label(machine, one) for one in (pair.gpu, pair.other))


def _guest(machine: Machine, pair: Pair) -> Finding:
    return finding.unknown(
        f"{pair.path.near} in this virtual machine",
        needed="PIX or PXB",
        subject=_subject(machine, pair),
        why="The hypervisor makes up the PCI tree that a guest sees: how near the two are is known "
        "on the host.",
        remedy=["# On the host: nvidia-smi topo -m, or dgkit doctor topology"],
        sources=[_GUIDE],
    )


def _judged(machine: Machine, pair: Pair) -> Finding:
    path = pair.path
    found = f"{path.near}: {path.near.text}"
    if path.why:
        said = finding.unknown(
            f"{path.near} at worst",
            why=f"{path.why[0].upper()}{path.why[1:]}.",
            remedy=[nvidia_topo.COMMAND],
            sources=[_GUIDE],
        )
    elif path.near <= Near.PXB:
        said = finding.ok(found, sources=[_GUIDE])
    elif path.near is Near.PHB:
        said = finding.ok(
            found,
            why="It works on the same host bridge and NUMA node; how fast depends on the CPU. "
            + _tested(machine),
            sources=[_GUIDE, _KERNEL, _DRIVER],
            disagree=_HAIRPIN,
        )
    else:
        said = _far(machine, pair)
    subject = _subject(machine, pair)
    return msgspec.structs.replace(said, needed="PIX or PXB; PHB is acceptable", subject=subject)


def _far(machine: Machine, pair: Pair) -> Finding:
    """Of two on different host bridges."""
    near, side = pair.path.near, _data_direct(machine, pair)
    if side is not None:
        return finding.ok(
            f"{near}, and {side.near} by Data Direct",
            why=f"The NIC's Data Direct function, {side.b}, is nearer to the GPU: data goes there "
            "where memory is registered for it.",
            sources=[references.GRACE_CX8("Platform Software and Configuration")],
        )
    if _kind(machine, pair.gpu.address) is Kind.GRACE:
        return _coherent(near)
    return finding.warn(
        f"{near}: {near.text}",
        why=f"Bytes pass {near.text}: slower, and on some platforms not at all. {_tested(machine)}",
        remedy=[*_MOVE, nvidia_topo.COMMAND, "sudo dmesg | grep -i 'topology not supported'"],
        sources=[_GUIDE, _RDMA, _KERNEL, _DRIVER],
        disagree=_FAR,
    )


def _coherent(near: Near) -> Finding:
    """Of a GPU whose memory the CPU has, too: the driver makes no test there."""
    by = "The NIC reaches the GPU's memory through the CPU, by NVLink-C2C: their places in the "
    by += "PCIe tree do not matter"
    if near is not Near.SYS:
        return finding.ok(f"{near}, by NVLink-C2C", why=f"{by}.", sources=[_DRIVER])
    return finding.warn(
        f"{near}, by NVLink-C2C",
        why=f"{by}, but the bytes pass two CPU sockets.",
        remedy=["# Use the NIC of the GPU's own socket", nvidia_topo.COMMAND],
        sources=[_DRIVER, _GUIDE],
    )


def _data_direct(machine: Machine, pair: Pair) -> topology.Path | None:
    """The path from the GPU to a ConnectX-8's second function, if that is a near one.

    Whose function it is stands in its VPD, which root alone may read: on one switch with the GPU it
    is the one that is meant for it.
    """
    tree = machine.know(pci.tree)
    if not pair.other.name.startswith("ConnectX-8"):
        return None
    those = data_direct.functions(machine)
    paths = [topology.path(tree, pair.gpu.address, one.address) for one in those]
    return next((one for one in paths if one.near <= Near.PXB), None)


_MOVE = ["# Move a card to a slot below the same PCIe switch or host bridge"]
_HAIRPIN = (
    "The GPUNetIO guide takes PHB for acceptable; the kernel's P2PDMA document says that the way "
    "from one root port to another is not defined by PCIe, and allows it (for drivers that use "
    "P2PDMA) on host bridges that are known to be good."
)
_FAR = (
    "The GPUNetIO guide says that NODE and SYS are slower and work; the GPUDirect RDMA guide says "
    "that both devices must share one upstream root complex; the kernel's P2PDMA document allows "
    "it (for drivers that use P2PDMA) between host bridges that are known to be good, and no other."
)


@check("topology-nvidia-smi", "PCIe topology, as nvidia-smi has it", goals=WITH_GPU)
def compared(case: Case) -> Iterator[Finding]:
    """Does nvidia-smi see the same topology as sysfs?"""
    tree = case.machine.know(pci.tree)
    reading = case.machine.read.run(*nvidia_topo.COMMAND.split())
    if reading.absent or not (tree.gpus or tree.why):
        yield finding.n_a("no nvidia-smi" if tree.gpus else "no NVIDIA GPU")
        return
    said = case.machine.know(nvidia_topo.topo_m)
    if said.why:
        yield finding.unknown(
            "no matrix", why=said.why, remedy=[nvidia_topo.COMMAND], sources=[_SMI]
        )
        return
    known = nvidia_topo.named(case.machine, said)
    names = [name for name in known if known[name] in tree.devices]
    both = [pair for pair in combinations(names, 2) if said.near(*pair) is not None]
    odd = [words for pair in both if (words := _differs(tree, said, known, pair))]
    why = tree.why or case.machine.know(rdma.devices).why
    if not both and why:
        yield finding.unknown("nothing to compare", why=f"{why.rstrip('.')}.", sources=[_SMI])
    elif not both:
        few = "one device" if len(names) < 2 else "NVLink, no PCIe class"
        yield finding.n_a(f"nothing to compare: {few}")
    elif odd:
        yield _odd(odd, len(both))
    else:
        count = f"{len(both)} pair{'s' if len(both) > 1 else ''}"
        yield finding.ok(f"the same for {count}", sources=[_SMI])


def _odd(odd: list[str], of: int) -> Finding:
    return finding.warn(
        f"{len(odd)} of {of} pairs differ",
        needed="the same",
        why=f"{'; '.join(odd[:4])}{' ...' if len(odd) > 4 else ''}. The driver knows more of the "
        "board than sysfs shows; a container or a virtual machine may show less.",
        remedy=[nvidia_topo.COMMAND],
        sources=[_SMI, _GUIDE],
    )


def _differs(
    tree: pci.PciTree, said: nvidia_topo.TopoM, known: dict[str, str], pair: tuple[str, str]
) -> str:
    """In words; "" if both say the same, or the path is not sure."""
    a, b = pair
    theirs = said.near(a, b)
    ours = topology.path(tree, known[a], known[b])
    if ours.why or theirs is ours.near:
        return ""
    return f"{a} and {b}: {theirs}, by sysfs {ours.near}"
