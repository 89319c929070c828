"""Where GPUs and NICs hang in the PCIe tree, and how near to each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from .. import finding, sources
from ..facts import gpudirect, gpus, partners, pci, topo_m, topology, virtual
from ..facts.partners import Pair
from ..facts.topology import Near
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check

__all__ = ["nothing"]

_GUIDE = sources.GPUNETIO("Installation and Setup, nvidia-smi topo -m")
_RDMA = sources.GPUDIRECT("Overview, Supported Systems")
_SMI = sources.NVIDIA_SMI("topo -m, Legend")
_KERNEL = sources.P2PDMA("PCI Peer-to-Peer DMA Support")


def nothing(case: Case) -> Finding | None:
    """What to say where there is no GPU, or no NIC and no DPU, or the tree cannot be read."""
    tree = case.machine.know(pci.tree)
    if tree.why:
        return finding.unknown("no PCI tree", why=tree.why)
    if not tree.gpus:
        return finding.n_a("no NVIDIA GPU in this machine's PCI tree")
    if not partners.others(case.machine, case.goal):
        return finding.n_a("no NIC or DPU that could reach a GPU")
    return None


@check("topology", "PCIe topology", goals=WITH_GPU)
def near(case: Case) -> Iterator[Finding]:
    """How near is each GPU to its nearest NIC or DPU?"""
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    virtual_machine = case.machine.know(virtual.virtual).is_vm
    for pair in partners.pairs(case.machine, case.goal):
        yield _guest(case.machine, pair) if virtual_machine else _judged(case.machine, pair)


def _subject(machine: Machine, pair: Pair) -> str:
    return " and ".join(partners.label(machine, one) for one in (pair.gpu, pair.other))


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
            remedy=[topo_m.COMMAND],
            sources=[_GUIDE],
        )
    elif path.near <= Near.PXB:
        said = finding.ok(found, sources=[_GUIDE])
    elif path.near is Near.PHB:
        said = finding.ok(
            found,
            why="It works on the same host bridge and NUMA node; how fast depends on the CPU.",
            sources=[_GUIDE, _KERNEL],
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
            sources=[sources.GRACE_CX8("Platform Software and Configuration")],
        )
    return finding.warn(
        f"{near}: {near.text}",
        why=f"Bytes pass {near.text}: slower, and on some platforms not at all.",
        remedy=[*_move(machine, pair), topo_m.COMMAND],
        sources=[_GUIDE, _RDMA, _KERNEL],
        disagree=_FAR,
    )


def _data_direct(machine: Machine, pair: Pair) -> topology.Path | None:
    """The path from the GPU to a ConnectX-8's second function, if that is a near one.

    Whose function it is stands in its VPD, which root alone may read: on one switch with the GPU it
    is the one that is meant for it.
    """
    tree = machine.know(pci.tree)
    if not pair.other.name.startswith("ConnectX-8"):
        return None
    those = [one.address for one in tree.devices.values() if partners.data_direct(one)]
    paths = [topology.path(tree, pair.gpu.address, one) for one in those]
    return next((one for one in paths if one.near <= Near.PXB), None)


def _move(machine: Machine, pair: Pair) -> list[str]:
    """For cards: a GPU that is one with its CPU has no slot."""
    found = (one for one in machine.know(gpus.gpus) if one.address == pair.gpu.address)
    kinds = [gpudirect.kind(machine, one) for one in found]
    card = all(kind in (gpudirect.Kind.BOARD, gpudirect.Kind.GEFORCE) for kind in kinds)
    return ["# Move a card to a slot below the same PCIe switch or host bridge"] if card else []


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
    reading = case.machine.read.run(*topo_m.COMMAND.split())
    if reading.absent or not (tree.gpus or tree.why):
        yield finding.n_a("no nvidia-smi" if tree.gpus else "no NVIDIA GPU")
        return
    said = case.machine.know(topo_m.topo_m)
    if said.why:
        yield finding.unknown("no matrix", why=said.why, remedy=[topo_m.COMMAND], sources=[_SMI])
        return
    known = topo_m.named(case.machine, said)
    names = [name for name in known if known[name] in tree.devices]
    both = list(combinations(names, 2))
    odd = [words for pair in both if (words := _differs(tree, said, known, pair))]
    if not both:
        yield finding.n_a("nothing to compare: one device")
    elif odd:
        yield _odd(odd, len(both))
    else:
        pairs = f"{len(both)} pair{'s' if len(both) > 1 else ''}"
        yield finding.ok(f"the same for {pairs}", sources=[_SMI])


def _odd(odd: list[str], of: int) -> Finding:
    return finding.warn(
        f"{len(odd)} of {of} pairs differ",
        needed="the same",
        why=f"{'; '.join(odd[:4])}{' ...' if len(odd) > 4 else ''}. The driver knows more of the "
        "board than sysfs shows; a container or a virtual machine may show less.",
        remedy=[topo_m.COMMAND],
        sources=[_SMI, _GUIDE],
    )


def _differs(
    tree: pci.PciTree, said: topo_m.TopoM, known: dict[str, str], pair: tuple[str, str]
) -> str:
    """In words; "" if both say the same, or one says nothing (NVLink, a path that is not sure)."""
    a, b = pair
    theirs = said.near(a, b)
    ours = topology.path(tree, known[a], known[b])
    if theirs is None or ours.why or theirs is ours.near:
        return ""
    return f"{a} and {b}: {theirs}, by sysfs {ours.near}"
