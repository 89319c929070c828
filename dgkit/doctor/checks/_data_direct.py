# SPDX-License-Identifier: Apache-2.0
"""ACS and IOMMU groups for access of ConnectX-8 to GPUs by Data Direct, as rdma_topo requires."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import bridges, data_direct, pci, topology
from ..facts.bridges import Bridge
from ..facts.data_direct import Placement
from ..facts.distribution import restart
from ..finding import Finding
from ..machine import Machine

_TOPO = references.RDMA_TOPO("compute_acs, check")
_GUIDE = references.GRACE_CX8("Platform Software and Configuration")
_SOURCES = (_TOPO, _GUIDE)
_CHECK = "sudo rdma_topo check"
_WRITE = (
    "# This writes pci=config_acs=... for GRUB, for kernels that know it:",
    restart("sudo rdma_topo write-grub-acs"),
)
_UNKNOWN_TREE = "unknown topology"
_NEEDED = "as rdma_topo requires"
_DISAGREE = (
    "The GPUNetIO guide wants all ACSCtl bits off; NVIDIA's rdma_topo sets some of them, which "
    "Data Direct needs: do not clear them here with setpci."
)


def judge_acs(machine: Machine) -> Iterator[Finding]:
    """Yield findings on whether the ACS bits of the ports are set as Data Direct needs them."""
    places = data_direct.placements(machine)
    if places is None:
        yield _unknown(_UNKNOWN_TREE, "rdma_topo has no rules for this PCI tree.")
        return
    masks = data_direct.acs_masks(machine, places)
    ports = [port for port in bridges.bridges(machine, masks) if port.why or port.acs is not None]
    unread = [port for port in ports if port.why]
    if unread:
        yield _unknown("needs root", f"{unread[0].why}.")
        return
    wrong = [port for port in ports if not _is_right(port, masks[port.address])]
    for port in wrong:
        yield finding.warn(
            " ".join(f"{bit}+" for bit in port.on) or "all off",
            needed=" ".join(f"{bit}{'-+'[on]}" for bit, on in masks[port.address].items()),
            subject=port.address,
            why="Data Direct needs other ACS bits here: the driver may refuse GPU memory, or "
            "traffic from the NIC is routed up to the CPU.",
            remedy=[_CHECK, *_WRITE],
            sources=_SOURCES,
            disagree=_DISAGREE,
        )
    if not wrong:
        found = f"{len(ports)} ports {_NEEDED}"
        yield finding.ok(found, needed=_NEEDED, sources=_SOURCES, disagree=_DISAGREE)


def _is_right(bridge: Bridge, mask: dict[str, bool]) -> bool:
    return all((bit in bridge.on) is on for bit, on in mask.items())


def _unknown(found: str, why: str) -> Finding:
    return finding.unknown(
        found, needed=_NEEDED, why=why, remedy=[_CHECK], sources=_SOURCES, disagree=_DISAGREE
    )


def judge_groups(machine: Machine) -> Iterator[Finding]:
    """Yield findings on whether each Data Direct function shares an IOMMU group with its GPU."""
    places = data_direct.placements(machine)
    needed = "one IOMMU group"
    if places is None:
        yield finding.unknown(
            _UNKNOWN_TREE, needed=needed, remedy=[_CHECK], sources=_SOURCES,
            why="Which GPU a Data Direct function belongs to cannot be determined here.",
        )  # fmt: skip
        return
    off = topology.override(machine) == "1"
    for place in places:
        yield _judge_group(machine, place, needed, off)


def _judge_group(machine: Machine, place: Placement, needed: str, off: bool) -> Finding:
    subject = f"{place.function} and {place.gpu}"
    keys = [f"link {pci.DEVICES}/{address}/iommu_group" for address in (place.function, place.gpu)]
    links = machine.read.together(keys)
    numbers = [link.text.rpartition("/")[2] for link in links if link.ok]
    if len(numbers) == 2 and numbers[0] == numbers[1]:
        found = f"both in group {numbers[0]}"
        return finding.ok(found, needed=needed, subject=subject, sources=_SOURCES)
    unread = next((link for link in links if not link.ok and not link.absent), None)
    if unread is not None:
        return finding.unknown(
            "not read", needed=needed, subject=subject, why=f"{unread.why}.", remedy=[_CHECK],
            sources=_SOURCES,
        )  # fmt: skip
    found = f"groups {' and '.join(numbers)}" if len(numbers) == 2 else "not both in a group"
    if off:
        why = f"The driver's own test is off ({topology.OVERRIDE}=1), so it does not matter."
        return finding.ok(found, needed=needed, subject=subject, why=why, sources=_SOURCES)
    return finding.warn(
        found,
        needed=needed,
        subject=subject,
        why="NVIDIA's driver gives GPU memory only to a Data Direct function in the GPU's group.",
        remedy=[_CHECK, *_WRITE],
        sources=(*_SOURCES, references.OPEN_MODULES("nvidia/nv-pci.c")),
    )
