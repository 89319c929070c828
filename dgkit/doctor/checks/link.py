# SPDX-License-Identifier: Apache-2.0
"""PCIe links: speed and width, current and maximum."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .. import finding, references
from ..facts import link as link_facts
from ..facts import pairs, pci
from ..facts.link import PcieLink
from ..facts.nvidia_smi import smi
from ..facts.pci import PciDevice
from ..finding import Finding
from ..goals import WITH_CARD, Goal
from ..machine import Case
from ..prerequisites import applies, readable, reason
from ..registry import check
from ._devices import only_good

_FILES = references.SYSFS_PCI("current_link_speed, max_link_speed, current_link_width")
_STATES = references.NVIDIA_SMI("Performance State")
_RATE = references.PCI_SPEEDS("PCIE_SPEED2MBS_ENC: GB/s of GT/s")

_BUSY = 2  # performance states P0 to P2 mean load: CUDA uses P2 on some GPUs


def _devices(case: Case) -> tuple[PciDevice, ...]:
    gpus = case.machine.know(pci.tree).gpus if case.goal is not Goal.HOST_DMA else ()
    return (*gpus, *pairs.peers(case.machine, case.goal))


@check(
    "link",
    "PCIe links",
    asks="Do the links of GPUs, NICs and DPUs have their full speed and width?",
    goals=WITH_CARD,
    requires=[readable(reason(pci.tree), "no PCI tree"), applies(_devices, "no GPU, NIC or DPU")],
)
def _link(case: Case) -> Iterator[Finding]:
    yield from only_good(case.machine, _links(case, _devices(case)), "links")


def _links(case: Case, devices: tuple[PciDevice, ...]) -> Iterator[Finding]:
    tree, found = case.machine.know(pci.tree), pairs.pairs(case.machine, case.goal)
    between = {bridge for pair in found for bridge in link_facts.traversed(pair.path)}
    above = {tree.parent(device.address) for device in devices} & set(tree.devices)
    addresses = sorted({device.address for device in devices} | above | between)
    links = link_facts.links(case.machine, addresses)
    for device in devices:
        port = links.get(tree.parent(device.address), PcieLink(""))
        yield _judge_link(case, device, links[device.address], port)
    for pair in found:
        yield from _judge_narrowest(case, pair, links)


def _judge_link(case: Case, device: PciDevice, link: PcieLink, port: PcieLink) -> Finding:
    subject = pairs.label(case.machine, device)
    if not link.known:
        no_link = "The kernel shows no speed: a device inside the CPU or chipset has no link."
        return finding.unknown(
            "not in sysfs",
            needed="speed and width",
            subject=subject,
            why=no_link,
            remedy=[f"sudo lspci -s {device.address} -vvv | grep -E 'LnkCap:|LnkSta:'"],
            sources=[_FILES],
        )
    if by_design := _by_design(link, port):
        found = finding.ok(link.text, why=by_design)
    elif link.lanes < link.max_lanes:
        why = f"{link.lanes} of {link.max_lanes} lanes are in use: check slot, riser and contacts."
        found = finding.warn(link.text, why=why, remedy=_SEAT)
    elif link.speed < link.max_speed:
        found = _slow_link(case, device, link)
    else:
        found = finding.ok(link.text)
    return msgspec.structs.replace(
        found, needed=link.max_text, subject=subject, sources=(_FILES, _RATE, *found.sources)
    )


_SEAT = (
    "# Power off, reseat the card and its riser; the board's manual lists the full-width slots",
    "# In the BIOS: set the slot's bifurcation and link speed to Auto",
)


def _by_design(link: PcieLink, port: PcieLink) -> str:
    """Return a description of the limit if the slot limits the link, "" otherwise."""
    lanes, speed = min(link.max_lanes, port.max_lanes), min(link.max_speed, port.max_speed)
    full = (link.lanes, link.speed) == (lanes, speed)
    less = port.max_lanes < link.max_lanes or port.max_speed < link.max_speed
    if not (port.max_lanes and full and less):
        return ""
    slot = f"{port.max_lanes} lanes at {port.max_speed:g} GT/s at most"
    return f"The slot has {slot}, and the link uses all of them."


def _slow_link(case: Case, device: PciDevice, link: PcieLink) -> Finding:
    if device.is_gpu:
        alike = (found for found in case.machine.know(smi).gpus if found.address == device.address)
        state = next((found.value("Performance State") for found in alike), "")
        now, most = link.speeds
        idle = re.fullmatch(r"P([0-9]{1,2})", state)
        if idle is not None and int(idle[1]) > _BUSY:
            return finding.ok(
                f"{now} now (idle, {state}), at most {most.removeprefix('PCIe ')}",
                why="A GPU lowers its link speed when idle.",
                sources=[_STATES],
            )
        again = ["# Start work on the GPU, then check again", "dgkit doctor link"]
        if idle is None:
            why = "A GPU lowers its link speed when idle; nvidia-smi does not show whether it is."
            return finding.unknown(
                f"{now} now", why=why, remedy=["nvidia-smi -q -d PERFORMANCE"], sources=[_STATES]
            )
        why = (
            f"Its performance state {state} is one under load; the link should be slow only "
            "when idle."
        )
        return finding.warn(link.text, why=why, remedy=[*again, *_SEAT], sources=[_STATES])
    why = "Card and slot support more: check riser, cable and BIOS limits."
    return finding.warn(link.text, why=why, remedy=_SEAT)


def _judge_narrowest(case: Case, pair: pairs.Pair, links: dict[str, PcieLink]) -> Iterator[Finding]:
    """Yield a warning if a link between the two devices is slower than both devices support."""
    ends = [links[device.address] for device in (pair.gpu, pair.peer)]
    between = (links[address] for address in link_facts.traversed(pair.path)[1:-1])
    inner = [link for link in between if link.known]
    if not inner or not all(link.known for link in ends):
        return
    slowest = min(inner, key=lambda link: link.rate)
    needed = min(ends, key=lambda link: link.max_rate)
    if slowest.rate < min(needed.max_rate, slowest.max_rate):  # otherwise it is slow by design
        labels = [pairs.label(case.machine, device) for device in (pair.gpu, pair.peer)]
        yield finding.warn(
            f"{slowest.text} at {slowest.address}",
            needed=needed.max_text,
            subject=" and ".join(labels),
            why="A switch between the two is slower than both support.",
            remedy=_SEAT[1:],
            sources=[_FILES, _RATE],
        )
