"""NUMA nodes and the CPUs near a device."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import pairs, pci
from ..facts.pairs import Pair
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case
from ..registry import check

__all__ = ["judge"]

_GUIDE = references.GPUNETIO("Installation and Setup, nvidia-smi topo -m")
_ABI = references.NUMA_ABI("/sys/devices/system/node/nodeX/cpulist")


@check("numa", "NUMA nodes", goals=WITH_GPU)
def judge(case: Case) -> Iterator[Finding]:
    """Are GPU, NIC and the CPUs of this process on one NUMA node?"""
    tree = case.machine.know(pci.tree)
    devices = (*tree.gpus, *pairs.others(case.machine, case.goal))
    if not devices and not tree.why:
        yield finding.n_a("no GPU, NIC or DPU")
    elif len(tree.nodes) == 1:
        yield finding.ok("one NUMA node", sources=[_ABI])
    elif tree.why:
        yield finding.unknown("no PCI tree", why=tree.why)
    else:
        for pair in pairs.pairs(case.machine, case.goal):
            yield _together(case, pair)
        yield _near(case, sorted({tree.numa(one.address) for one in devices}))


def _together(case: Case, pair: Pair) -> Finding:
    tree = case.machine.know(pci.tree)
    subject = " and ".join(pairs.label(case.machine, one) for one in (pair.gpu, pair.other))
    gpu, other = tree.numa(pair.gpu.address), tree.numa(pair.other.address)
    if gpu < 0 or other < 0:
        return finding.unknown(
            "no node is named", needed="one node", subject=subject, sources=[_ABI],
            why="The firmware does not tell the kernel which node a device is near to (-1).",
            remedy=["# In the BIOS: NUMA on, and 'node interleaving' off"],
        )  # fmt: skip
    if gpu == other:
        return finding.ok(
            f"both on node {gpu}", needed="one node", subject=subject, sources=[_GUIDE]
        )
    return finding.warn(
        f"GPU on node {gpu}, {pair.other.name} on node {other}",
        needed="one node",
        subject=subject,
        why="Each byte crosses the link between two CPU sockets or NUMA nodes.",
        remedy=[
            f"# Move one of the two, where it is a card, to a slot of node {gpu} or node {other}"
        ],
        sources=[_GUIDE],
    )


def _near(case: Case, nodes: list[int]) -> Finding:
    """Of the CPUs that this process may use."""
    nodes = [node for node in nodes if node >= 0]
    asked = case.machine.read.ask("cpus")
    files = [f"text /sys/devices/system/node/node{node}/cpulist" for node in nodes]
    lists = case.machine.read.together(files)
    near = {cpu for one in lists for cpu in pci.numbers(one.text)}
    mine = (
        {cpu for cpu in asked.data if type(cpu) is int} if isinstance(asked.data, list) else set()
    )
    names = ", ".join(str(node) for node in nodes)
    facts = {"needed": f"CPUs of node {names}", "subject": "CPUs of this process"}
    if not near or not mine:
        bad = next((one.why for one in (asked, *lists) if not one.ok), "")
        why = bad or "No device has a NUMA node, so no CPU is known to be near."
        return finding.unknown(
            "cannot be compared", why=why, sources=[_ABI], subject=facts["subject"]
        )
    if not mine & near:
        return finding.warn(
            f"{len(mine)} CPUs, none of them near",
            why="A thread on a far node adds to each operation's latency, and its memory is far.",
            remedy=[f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]} dgkit lab"],
            sources=[_ABI],
            **facts,
        )
    some = f"{len(mine & near)} of {len(mine)} are near"
    return finding.ok("all are near" if mine <= near else some, sources=[_ABI], **facts)
