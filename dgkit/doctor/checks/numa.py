# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes of the devices and of this process."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import pairs, pci
from ..facts.pairs import Pair
from ..finding import Finding, Verdict
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..prerequisites import applies, readable
from ..registry import check
from ._devices import only_good

_GUIDE = references.GPUNETIO("Installation and Setup, nvidia-smi topo -m")
_ABI = references.NUMA_ABI("/sys/devices/system/node/nodeX/cpulist")


def _devices(case: Case) -> tuple[pci.PciDevice, ...]:
    return (*case.machine.know(pci.tree).gpus, *pairs.peers(case.machine, case.goal))


def _tree_unread(case: Case) -> str:
    tree = case.machine.know(pci.tree)
    return tree.why if len(tree.nodes) != 1 else ""


@check(
    "numa",
    "NUMA nodes",
    asks="Are GPU, NIC and the CPUs of this process on one NUMA node?",
    goals=WITH_GPU,
    requires=[
        applies(
            lambda case: _devices(case) or case.machine.know(pci.tree).why, "no GPU, NIC or DPU"
        ),
        readable(_tree_unread, "no PCI tree"),
    ],
)
def _numa(case: Case) -> Iterator[Finding]:
    tree = case.machine.know(pci.tree)
    if len(tree.nodes) == 1:
        yield finding.ok("one NUMA node", sources=[_ABI])
    else:
        devices = _devices(case)
        found = [_judge_pair(case, pair) for pair in pairs.pairs(case.machine, case.goal)]
        if case.goal is not Goal.ARM_DMA or any(result.verdict is Verdict.OK for result in found):
            found = [_without_warning(result) for result in found]
        yield from only_good(case.machine, found, "nodes")
        yield _judge_cpus(case, sorted({tree.numa(device.address) for device in devices}))


def _judge_pair(case: Case, pair: Pair) -> Finding:
    tree = case.machine.know(pci.tree)
    subject = " and ".join(pairs.label(case.machine, end) for end in (pair.gpu, pair.peer))
    gpu, other = tree.numa(pair.gpu.address), tree.numa(pair.peer.address)
    if gpu < 0 or other < 0:
        return finding.unknown(
            "no node given", needed="one node", subject=subject, sources=[_ABI],
            why="The firmware gives the kernel no node for a device (-1).",
            remedy=["# In the BIOS: NUMA on, 'node interleaving' off"],
        )  # fmt: skip
    if gpu == other:
        return finding.ok(
            f"both on node {gpu}", needed="one node", subject=subject, sources=[_GUIDE]
        )
    return finding.warn(
        f"GPU on node {gpu}, {pair.peer.name} on node {other}",
        needed="one node",
        subject=subject,
        why="Each byte crosses the link between two CPU sockets or NUMA nodes.",
        remedy=[f"# Move one of the two, if it is a card, to a slot of node {gpu} or node {other}"],
        sources=[_GUIDE],
    )


def _without_warning(found: Finding) -> Finding:
    """Return the finding, as OK instead of a warning."""
    if found.verdict is not Verdict.WARN:
        return found
    return finding.ok(
        found.found, needed=found.needed, why=found.why, subject=found.subject,
        sources=found.sources,
    )  # fmt: skip


def _judge_cpus(case: Case, nodes: list[int]) -> Finding:
    """Return the finding on the CPUs that this process may use."""
    nodes = [node for node in nodes if node >= 0]
    allowed = case.machine.read.ask("cpus")
    files = [f"text /sys/devices/system/node/node{node}/cpulist" for node in nodes]
    lists = case.machine.read.together(files)
    near = {cpu for reading in lists for cpu in pci.parse_list(reading.text)}
    data = allowed.data if isinstance(allowed.data, list) else []
    cpus = {cpu for cpu in data if type(cpu) is int}
    names = ", ".join(str(node) for node in nodes)
    about = {"needed": f"CPUs of node {names}", "subject": "CPUs of this process"}
    if not near or not cpus:
        unread = next((reading.why for reading in (allowed, *lists) if not reading.ok), "")
        why = unread or "No device has a NUMA node, so which CPUs are near is not known."
        return finding.unknown(
            "cannot be compared", why=why, sources=[_ABI], subject=about["subject"]
        )
    if not cpus & near:
        return finding.warn(
            f"{len(cpus)} CPUs, none of them near",
            why="A thread on a remote node adds latency to each operation; its memory is remote.",
            remedy=[f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]} dgkit lab"],
            sources=[_ABI],
            **about,
        )
    some = f"{len(cpus & near)} of {len(cpus)} are near"
    return finding.ok("all are near" if cpus <= near else some, sources=[_ABI], **about)
