"""ACS and IOMMU groups where ConnectX-8 reaches GPUs by Data Direct, as rdma_topo wants them."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import bridges, data_direct, pci, topology
from ..facts.bridges import Bridge
from ..facts.data_direct import Place
from ..facts.system import restart
from ..finding import Finding
from ..machine import Machine

__all__ = ["acs", "groups"]

_TOPO = references.RDMA_TOPO("compute_acs, check")
_GUIDE = references.GRACE_CX8("Platform Software and Configuration")
_SOURCES = (_TOPO, _GUIDE)
_CHECK = "sudo rdma_topo check"
_WRITE = (
    "# This writes pci=config_acs=... for GRUB, for kernels that know it:",
    restart("sudo rdma_topo write-grub-acs"),
)
_STRANGE = "not a place that is known"
_NEEDED = "as rdma_topo has it"
_DISAGREE = (
    "The GPUNetIO guide wants all ACSCtl bits off; NVIDIA's rdma_topo sets some of them, on which "
    "Data Direct rests: do not clear them here by setpci."
)


def acs(machine: Machine) -> Iterator[Finding]:
    """Are the ports' bits those that Data Direct needs?"""
    places = data_direct.places(machine)
    if places is None:
        yield _unknown(_STRANGE, "It is no tree that rdma_topo's rules are about.")
        return
    masks = data_direct.masks(machine, places)
    read = [one for one in bridges.bridges(machine, masks) if one.why or one.acs is not None]
    dark = [one for one in read if one.why]
    if dark:
        yield _unknown("needs root", f"{dark[0].why}.")
        return
    wrong = [one for one in read if not _right(one, masks[one.address])]
    for one in wrong:
        yield finding.warn(
            " ".join(f"{bit}+" for bit in one.on) or "all off",
            needed=" ".join(f"{bit}{'-+'[on]}" for bit, on in masks[one.address].items()),
            subject=one.address,
            why="Data Direct needs other ACS bits here: the driver may refuse GPU memory, or what "
            "the NIC sends goes up to the CPU.",
            remedy=[_CHECK, *_WRITE],
            sources=_SOURCES,
            disagree=_DISAGREE,
        )
    if not wrong:
        yield finding.ok(
            f"{len(read)} ports {_NEEDED}", needed=_NEEDED, sources=_SOURCES, disagree=_DISAGREE
        )


def _right(bridge: Bridge, mask: dict[str, bool]) -> bool:
    return all((bit in bridge.on) is on for bit, on in mask.items())


def _unknown(found: str, why: str) -> Finding:
    return finding.unknown(
        found, needed=_NEEDED, why=why, remedy=[_CHECK], sources=_SOURCES, disagree=_DISAGREE
    )


def groups(machine: Machine) -> Iterator[Finding]:
    """Are each Data Direct function and its GPU in one IOMMU group?"""
    places = data_direct.places(machine)
    needed = "one IOMMU group"
    if places is None:
        yield finding.unknown(
            _STRANGE, needed=needed, remedy=[_CHECK], sources=_SOURCES,
            why="Which GPU a Data Direct function belongs to is not to be told here.",
        )  # fmt: skip
        return
    off = topology.override(machine) == "1"
    for one in places:
        yield _group(machine, one, needed, off)


def _group(machine: Machine, place: Place, needed: str, off: bool) -> Finding:
    subject = f"{place.function} and {place.gpu}"
    keys = [f"link {pci.DEVICES}/{one}/iommu_group" for one in (place.function, place.gpu)]
    read = machine.read.together(keys)
    numbers = [one.text.rpartition("/")[2] for one in read if one.ok]
    if len(numbers) == 2 and numbers[0] == numbers[1]:
        return finding.ok(
            f"both in group {numbers[0]}", needed=needed, subject=subject, sources=_SOURCES
        )
    bad = next((one for one in read if not one.ok and not one.absent), None)
    if bad is not None:
        return finding.unknown(
            "not told", needed=needed, subject=subject, why=f"{bad.why}.", remedy=[_CHECK],
            sources=_SOURCES,
        )  # fmt: skip
    found = f"groups {' and '.join(numbers)}" if len(numbers) == 2 else "not both in a group"
    if off:
        why = f"The driver's own test is off ({topology.OVERRIDE}=1), so it does not mind."
        return finding.ok(found, needed=needed, subject=subject, why=why, sources=_SOURCES)
    return finding.warn(
        found,
        needed=needed,
        subject=subject,
        why="NVIDIA's driver gives the GPU's memory to a Data Direct function of its group only.",
        remedy=[_CHECK, *_WRITE],
        sources=(*_SOURCES, references.OPEN_MODULES("nvidia/nv-pci.c")),
    )
