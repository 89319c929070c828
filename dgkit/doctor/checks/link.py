"""The speed and width of PCIe links, now and at most."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .. import finding, references
from ..facts import link as link_facts
from ..facts import pairs, pci, virtual
from ..facts.link import PcieLink
from ..facts.nvidia_smi import smi
from ..facts.pci import PciDevice
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case
from ..registry import check

__all__ = ["judge"]

_FILES = references.SYSFS_PCI("current_link_speed, max_link_speed, current_link_width")
_STATES = references.NVIDIA_SMI("Performance State")
_RATE = references.PCI_SPEEDS("PCIE_SPEED2MBS_ENC: GB/s of GT/s")


_BUSY = 2  # performance states P0 to P2 are for work: CUDA has P2 on some GPUs


@check("link", "PCIe links", goals=WITH_GPU)
def judge(case: Case) -> Iterator[Finding]:
    """Do GPUs, NICs and DPUs have all the speed and all the lanes that they can have?"""
    tree = case.machine.know(pci.tree)
    devices = (*tree.gpus, *pairs.others(case.machine, case.goal))
    if tree.why:
        yield finding.unknown("no PCI tree", why=tree.why)
        return
    if not devices:
        yield finding.n_a("no GPU, NIC or DPU")
        return
    found = pairs.pairs(case.machine, case.goal)
    between = {one for pair in found for one in link_facts.passed(pair.path)}
    above = {tree.parent(one.address) for one in devices} & set(tree.devices)
    wanted = sorted({one.address for one in devices} | above | between)
    known = link_facts.links(case.machine, wanted)
    for device in devices:
        over = known.get(tree.parent(device.address), PcieLink(""))
        yield _judged(case, device, known[device.address], over)
    for pair in found:
        yield from _narrowest(case, pair, known)


def _judged(case: Case, device: PciDevice, link: PcieLink, over: PcieLink) -> Finding:
    subject = pairs.label(case.machine, device)
    if not link.known:
        guest = case.machine.know(virtual.virtual).is_vm
        no_link = "The kernel tells no speed: a device inside the CPU or chip set has no link."
        return finding.unknown(
            "sysfs does not say",
            needed="speed and width",
            subject=subject,
            why="A virtual machine has no links of its own." if guest else no_link,
            remedy=[f"sudo lspci -s {device.address} -vvv | grep -E 'LnkCap:|LnkSta:'"],
            sources=[_FILES],
        )
    if link.lanes < link.most_lanes:
        found = finding.warn(link.now, why=_few_lanes(link, over), remedy=_SEAT)
    elif link.speed < link.most_speed:
        found = _slow(case, device, link, over)
    else:
        found = finding.ok(link.now)
    return msgspec.structs.replace(
        found, needed=link.most, subject=subject, sources=(_FILES, _RATE, *found.sources)
    )


_SEAT = (
    "# Power off, seat the card and its riser again; the board's manual says which slot is whole",
    "# In the BIOS: the slot's bifurcation and link speed on Auto",
)


def _few_lanes(link: PcieLink, over: PcieLink) -> str:
    if 0 < over.most_lanes < link.most_lanes:
        return f"The slot has {over.most_lanes} lanes, the card {link.most_lanes}."
    return f"{link.lanes} of {link.most_lanes} lanes are in use: a slot, a riser or a contact."


def _slow(case: Case, device: PciDevice, link: PcieLink, over: PcieLink) -> Finding:
    if 0 < over.most_speed < link.most_speed:
        why = f"The port above it, {over.address}, does {over.most_speed:g} GT/s at most."
        return finding.warn(link.now, why=why, remedy=_SEAT[:1])
    if device.is_gpu:
        return _slow_gpu(case, device, link)
    why = "It runs slower than card and slot can: a riser, a cable, or a limit in the BIOS."
    return finding.warn(link.now, why=why, remedy=_SEAT)


def _slow_gpu(case: Case, gpu: PciDevice, link: PcieLink) -> Finding:
    """A GPU lowers its speed when idle: by its performance state, P0 (the highest) to P15."""
    those = (one for one in case.machine.know(smi).gpus if one.address == gpu.address)
    state = next((one.said("Performance State") for one in those), "")
    now, most = link.speeds
    idle = re.fullmatch(r"P([0-9]{1,2})", state)
    if idle is not None and int(idle[1]) > _BUSY:
        return finding.ok(
            f"{now} now (idle, {state}), at most {most.removeprefix('PCIe ')}",
            why="A GPU lowers its speed when idle, and raises it when it has work.",
            sources=[_STATES],
        )
    again = ["# Start work on the GPU, then look again", "dgkit doctor link"]
    if idle is None:
        why = "A GPU lowers its speed when idle, and nvidia-smi does not say whether it is."
        return finding.unknown(
            f"{now} now", why=why, remedy=["nvidia-smi -q -d PERFORMANCE"], sources=[_STATES]
        )
    why = f"Its performance state, {state}, is one for work: only when idle may it be as slow."
    return finding.warn(link.now, why=why, remedy=[*again, *_SEAT], sources=[_STATES])


def _narrowest(case: Case, pair: pairs.Pair, known: dict[str, PcieLink]) -> Iterator[Finding]:
    """If a switch on the way carries less than both ends can."""
    ends = [known[one.address] for one in (pair.gpu, pair.other)]
    inner = [known[one] for one in link_facts.passed(pair.path)[1:-1] if known[one].known]
    if not inner or not all(one.known for one in ends):
        return
    slowest = min(inner, key=lambda one: one.rate)
    needed = min(ends, key=lambda one: one.most_rate)
    if slowest.rate < needed.most_rate:
        labels = [pairs.label(case.machine, one) for one in (pair.gpu, pair.other)]
        yield finding.warn(
            f"{slowest.now} at {slowest.address}",
            needed=needed.most,
            subject=" and ".join(labels),
            why="A switch between the two carries less than both of them can.",
            remedy=_SEAT[1:],
            sources=[_FILES, _RATE],
        )
