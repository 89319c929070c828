"""Where GPUs and NICs hang in the PCIe tree, and how near to each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

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
    path, subject = pair.path, _subject(machine, pair)
    needed = "PIX or PXB; PHB is acceptable"
    if path.why:
        return finding.unknown(
            f"{path.near} at worst",
            needed=needed,
            subject=subject,
            why=f"{path.why[0].upper()}{path.why[1:]}.",
            remedy=[topo_m.COMMAND],
            sources=[_GUIDE],
        )
    found = f"{path.near}: {path.near.text}"
    if path.near <= Near.PXB:
        return finding.ok(found, needed=needed, subject=subject, sources=[_GUIDE])
    if path.near is Near.PHB:
        return finding.ok(
            found, needed=needed, subject=subject, sources=[_GUIDE, _KERNEL],
            why="It works on the same host bridge and NUMA node; how fast depends on the CPU.",
            disagree=_HAIRPIN,
        )  # fmt: skip
    return finding.warn(
        found,
        needed=needed,
        subject=subject,
        why=f"Bytes pass {path.near.text}: slower, and on some platforms not at all.",
        remedy=[*_move(machine, pair), topo_m.COMMAND],
        sources=[_GUIDE, _RDMA, _KERNEL],
        disagree=_FAR,
    )


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
    source = sources.NVIDIA_SMI("topo -m, Legend")
    if said.why:
        yield finding.unknown("no matrix", why=said.why, remedy=[topo_m.COMMAND], sources=[source])
        return
    known = topo_m.named(case.machine, said)
    both = [
        pair for pair in combinations(known, 2) if {known[one] for one in pair} <= {*tree.devices}
    ]
    odd = [words for pair in both if (words := _differs(tree, said, known, pair))]
    if not both:
        yield finding.n_a("nothing to compare: one device")
    elif odd:
        yield finding.warn(
            f"{len(odd)} of {len(both)} pairs differ",
            needed="the same",
            why=f"{'; '.join(odd[:4])}{' ...' if len(odd) > 4 else ''}. The driver knows more of "
            "the board than sysfs shows; a container or a virtual machine may show less.",
            remedy=[topo_m.COMMAND],
            sources=[source, sources.GPUNETIO("Installation and Setup, nvidia-smi topo -m")],
        )
    else:
        pairs = f"{len(both)} pair{'s' if len(both) > 1 else ''}"
        yield finding.ok(f"the same for {pairs}", sources=[source])


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
