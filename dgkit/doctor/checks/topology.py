# SPDX-License-Identifier: Apache-2.0
"""PCIe topology: the distance between each GPU and its nearest NIC or DPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from ..facts.distribution import initramfs, restart
from ..facts.gpudirect import Kind
from ..facts.pairs import Pair
from ..facts.topology import Near, is_first_qpi, is_intel_client
from ..finding import Finding, Verdict
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import NO_GPU, applies, readable, reason
from ..registry import check
from ._devices import only_good

_GUIDE = references.GPUNETIO("Installation and Setup, nvidia-smi topo -m")
_RDMA = references.GPUDIRECT("Overview, Supported Systems")
_SMI = references.NVIDIA_SMI("topo -m, Legend")
_KERNEL = references.P2PDMA("PCI Peer-to-Peer DMA Support")
_DRIVER = references.OPEN_MODULES("nvidia/nv-pci.c, nv_grdma_pci_topology_supported")


def _shares_memory(machine: Machine, gpu: pci.PciDevice) -> bool:
    """Return whether a GPU is part of the CPU and CUDA does not report GPUDirect.

    Its memory is then the CPU's memory, so that no NIC accesses the GPU itself.
    """
    if _kind(machine, gpu.address) not in (Kind.SPARK, Kind.TEGRA):
        return False
    known = _gpus_at(machine, gpu.address)
    names = ("GPU_DIRECT_RDMA_SUPPORTED", "DMA_BUF_SUPPORTED")
    return not any(cuda.attribute(machine, gpu, name) for gpu in known for name in names)


def _gpus_at(machine: Machine, address: str) -> list[gpus.Gpu]:
    """Return what the driver reports of the GPU at a PCI address: one item, or none."""
    return [gpu for gpu in machine.know(gpus.gpus) if gpu.address == address]


def _kind(machine: Machine, address: str) -> Kind | None:
    known = _gpus_at(machine, address)
    return gpudirect.kind(machine, known[0]) if known else None


# Requirements of the checks "topology" and "acs".
GPU_AND_PEER = (
    readable(reason(pci.tree), "no PCI tree"),
    applies(lambda case: case.machine.know(pci.tree).gpus, "no NVIDIA GPU in the PCI tree"),
    applies(
        lambda case: pairs.peers(case.machine, case.goal), "no NIC or DPU that could reach a GPU"
    ),
    applies(
        lambda case: (
            not all(_shares_memory(case.machine, gpu) for gpu in case.machine.know(pci.tree).gpus)
        ),
        "no GPUDirect: CPU and GPU share their memory",
    ),
)


@check(
    "topology",
    "PCIe topology",
    asks="How close is each GPU to its nearest NIC or DPU?",
    goals=WITH_GPU,
    requires=GPU_AND_PEER,
)
def _topology(case: Case) -> Iterator[Finding]:
    override = topology.override(case.machine)
    if override not in ("", "0", "1"):
        yield finding.warn(
            f"{topology.OVERRIDE} is {override}"[:45],
            needed="0 or 1",
            subject="NVIDIA's driver",
            why="With this setting the driver may deny GPU memory to every NIC and DPU.",
            remedy=[
                f"grep -rn {topology.OVERRIDE} /etc/modprobe.d",
                "# Remove it there, then:",
                restart(initramfs(case.machine)),
            ],
            sources=[_DRIVER],
        )
    virtual_machine = case.machine.know(virtual.virtual).is_vm
    found = pairs.pairs(case.machine, case.goal)
    if virtual_machine:
        yield _in_guest(found)
        return
    near = any(pair.path.near <= Near.NODE and not pair.path.why for pair in found)
    near &= case.goal is not Goal.ARM_DMA  # for ARM_DMA, each DPU counts
    for pair in found:
        judged = _judge_pair(case.machine, pair, case.goal)
        if near and pair.path.near is Near.SYS and judged.verdict is Verdict.WARN:
            judged = finding.ok(
                judged.found, subject=judged.subject, needed=judged.needed, sources=judged.sources,
                why=f"No NIC is near this GPU; others have one. {judged.why}",
            )  # fmt: skip
        yield judged


def _driver_test(machine: Machine) -> str:
    """Return a sentence on what NVIDIA's driver does if no switch connects the two devices."""
    if topology.override(machine) == "1":
        return f"The driver's own topology test is off ({topology.OVERRIDE}=1)."
    return (
        "If no switch connects the two, NVIDIA's driver refuses them on chipsets that it considers "
        "unsuitable; dmesg then has 'topology not supported'."
    )


def _in_guest(found: Sequence[Pair]) -> Finding:
    nearest = min(pair.path.near for pair in found)
    return finding.n_a(
        f"{nearest}, in the guest's own PCI tree",
        needed="on the hypervisor: nvidia-smi topo -m",
        why="The hypervisor defines the PCI tree of a guest; only the host shows the real one.",
        sources=[_GUIDE],
    )


def _is_distant(machine: Machine, pair: Pair, goal: Goal) -> bool:
    """Return whether DMA between two devices crosses host bridges and is slow, but works.

    DMA between sockets is even slower. It works on all but the oldest Intel servers; DMA by Arm
    cores has not been tried between sockets.
    """
    if pair.path.near is Near.NODE:
        return True
    known = goal is not Goal.ARM_DMA and not machine.know(is_first_qpi)
    return pair.path.near is Near.SYS and not pair.path.why and known


def _judge_pair(machine: Machine, pair: Pair, goal: Goal) -> Finding:
    path = pair.path
    found = f"{path.near}: {path.near.text}"
    if path.why:
        judged = finding.unknown(
            f"{path.near} at worst",
            why=finding.sentence(path.why),
            remedy=[nvidia_topo.COMMAND],
            sources=[_GUIDE],
        )
    elif path.near <= Near.PXB:
        judged = finding.ok(found, sources=[_GUIDE])
    elif path.near <= Near.NODE and machine.know(is_intel_client):
        judged = finding.warn(
            found,
            why="Intel's client processors forward writes between root ports, not reads: a NIC "
            "that reads GPU memory ends with an error (CQE syndrome 0x89).",
            remedy=["# Put GPU and NIC below one PCIe switch, or read through host memory"],
            sources=[references.OPEN_MODULES("issue 1253")],
        )
    elif _is_distant(machine, pair, goal) and _plain(machine, pair):
        judged = finding.ok(
            found,
            why=f"Bytes pass {path.near.text}: slower than a switch. {_driver_test(machine)}",
            sources=[_GUIDE, _RDMA, _KERNEL, _DRIVER],
            disagree=_FAR,
        )
    elif path.near is Near.PHB:
        judged = finding.ok(
            found,
            why="It works on the same host bridge and NUMA node; the speed depends on the CPU. "
            + _driver_test(machine),
            sources=[_GUIDE, _KERNEL, _DRIVER],
            disagree=_HAIRPIN,
        )
    else:
        judged = _far(machine, pair)
    subject = " and ".join(pairs.label(machine, end) for end in (pair.gpu, pair.peer))
    return msgspec.structs.replace(judged, needed="PIX or PXB; PHB is acceptable", subject=subject)


def _plain(machine: Machine, pair: Pair) -> bool:
    """Return whether data takes the path in the PCIe tree: neither Data Direct nor NVLink-C2C."""
    grace = _kind(machine, pair.gpu.address) is Kind.GRACE
    return not grace and _data_direct(machine, pair) is None


def _far(machine: Machine, pair: Pair) -> Finding:
    """Return the finding on two devices on different host bridges."""
    near, direct = pair.path.near, _data_direct(machine, pair)
    if direct is not None:
        return finding.ok(
            f"{near}, and {direct.near} by Data Direct",
            why=f"The NIC's Data Direct function, {direct.b}, is closer to the GPU: data takes "
            "that path if memory is registered for it.",
            sources=[references.GRACE_CX8("Platform Software and Configuration")],
        )
    if _kind(machine, pair.gpu.address) is Kind.GRACE:
        by = (
            "The NIC reaches GPU memory through the CPU, by NVLink-C2C: their positions in the "
            "PCIe "
        )
        by += "tree do not matter"
        if near is not Near.SYS:
            return finding.ok(f"{near}, by NVLink-C2C", why=f"{by}.", sources=[_DRIVER])
        return finding.warn(
            f"{near}, by NVLink-C2C",
            why=f"{by}, but the bytes pass two CPU sockets.",
            remedy=["# Use the NIC on the GPU's socket", nvidia_topo.COMMAND],
            sources=[_DRIVER, _GUIDE],
        )
    return finding.warn(
        f"{near}: {near.text}",
        why=f"Bytes pass {near.text}: slower, and on some platforms not at all. "
        + _driver_test(machine),
        remedy=[*_MOVE, nvidia_topo.COMMAND, "sudo dmesg | grep -i 'topology not supported'"],
        sources=[_GUIDE, _RDMA, _KERNEL, _DRIVER],
        disagree=_FAR,
    )


def _data_direct(machine: Machine, pair: Pair) -> topology.Path | None:
    """Return the path from the GPU to a ConnectX-8's Data Direct function on the same switch.

    Only root may read the VPD of the function, which names its NIC. Therefore the function on the
    same switch as the GPU is assumed to be the one intended for this GPU.
    """
    tree = machine.know(pci.tree)
    if not pair.peer.name.startswith("ConnectX-8"):
        return None
    functions = data_direct.functions(machine)
    paths = [topology.path(tree, pair.gpu.address, function.address) for function in functions]
    return next((path for path in paths if path.near <= Near.PXB), None)


_MOVE = ["# Move a card to a slot below the same PCIe switch or host bridge"]
_HAIRPIN = (
    "The GPUNetIO guide considers PHB acceptable; the kernel's P2PDMA document says that PCIe does "
    "not define the path from one root port to another, and allows it (for drivers that use "
    "P2PDMA) on host bridges that are known to work."
)
_FAR = (
    "The GPUNetIO guide says that NODE and SYS are slower and work; the GPUDirect RDMA guide says "
    "that both devices must share one upstream root complex; the kernel's P2PDMA document allows "
    "it (for drivers that use P2PDMA) only between host bridges that are known to work."
)


def _has_smi(case: Case) -> bool:
    return not case.machine.read.run(*nvidia_topo.COMMAND.split()).absent


def _may_have_gpu(case: Case) -> bool:
    tree = case.machine.know(pci.tree)
    return bool(tree.gpus or (tree.why and _has_smi(case)))


@check(
    "topology-nvidia-smi",
    "PCIe topology, by nvidia-smi",
    asks="Does nvidia-smi show the same topology as sysfs?",
    goals=WITH_GPU,
    sources=[_SMI],
    requires=[
        applies(_may_have_gpu, NO_GPU),
        applies(_has_smi, "no nvidia-smi"),
        readable(reason(nvidia_topo.topology_matrix), "no matrix", remedy=[nvidia_topo.COMMAND]),
    ],
)
def _topology_nvidia_smi(case: Case) -> Iterator[Finding]:
    tree = case.machine.know(pci.tree)
    matrix = case.machine.know(nvidia_topo.topology_matrix)
    known = nvidia_topo.addresses(case.machine, matrix)
    names = [name for name in known if known[name] in tree.devices]
    both = [pair for pair in combinations(names, 2) if matrix.near(*pair) is not None]
    different = [text for pair in both if (text := _difference(tree, matrix, known, pair))]
    why = tree.why or case.machine.know(rdma.devices).why
    if not both and why:
        yield finding.unknown("nothing to compare", why=f"{why.rstrip('.')}.")
    elif not both:
        why = "one device" if len(names) < 2 else "NVLink, no PCIe class"
        yield finding.n_a(f"nothing to compare: {why}")
    elif different:
        yield from only_good(
            case.machine, [_report_differing_pairs(different, len(both))], "classes"
        )
    else:
        count = f"{len(both)} pair{'s' if len(both) > 1 else ''}"
        yield finding.ok(f"the same for {count}")


def _report_differing_pairs(different: list[str], total: int) -> Finding:
    return finding.warn(
        f"{len(different)} of {total} pairs differ",
        needed="the same",
        why=f"{'; '.join(different[:4])}{' ...' if len(different) > 4 else ''}. The driver knows "
        "more about the board than sysfs; a container or virtual machine may show less.",
        remedy=[nvidia_topo.COMMAND],
        sources=[_SMI, _GUIDE],
    )


def _difference(
    tree: pci.PciTree,
    matrix: nvidia_topo.TopologyMatrix,
    known: dict[str, str],
    pair: tuple[str, str],
) -> str:
    """Return the difference for a pair; "" if there is none or the path in sysfs is uncertain."""
    a, b = pair
    theirs = matrix.near(a, b)
    ours = topology.path(tree, known[a], known[b])
    if ours.why or theirs is ours.near or {theirs, ours.near} == {Near.NODE, Near.SYS}:
        return ""  # the BIOS determines the extent of NUMA nodes, which does not matter here
    return f"{a} and {b}: {theirs}, in sysfs {ours.near}"
