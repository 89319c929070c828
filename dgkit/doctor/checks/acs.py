"""ACS on the bridges between a GPU and a NIC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import finding, references
from ..facts import bridges, cmdline, data_direct, pairs, virtual
from ..facts.bridges import Bridge
from ..facts.system import as_root
from ..facts.topology import Near
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from . import _data_direct
from .topology import nothing

__all__ = ["judge"]

_GUIDE = references.GPUNETIO("Installation and Setup, ACSCtl")
_LINUX = references.P2PDMA_CODE("pci_bridge_has_acs_redir")
_VFIO = references.VFIO("Groups, Devices, and IOMMUs")
_VM = references.VM_TUNING("ATS and ACS configuration")
_PARAMETERS = references.KERNEL_PARAMETERS("pci=disable_acs_redir=")
# These keep what would go to a neighbour from it (Linux, drivers/pci/p2pdma.c,
# pci_bridge_has_acs_redir); pci=disable_acs_redir= clears these alone (pci.c, pci_enable_acs).
_REDIRECT = frozenset({"ReqRedir", "CmpltRedir", "EgressCtrl"})
_AS_ROOT = as_root("acs")
_NEEDED = "ReqRedir- CmpltRedir- EgressCtrl-"
_DISAGREE = (
    "The GPUNetIO guide wants all ACSCtl bits off, on some x86 machines; Linux minds these three "
    "alone (P2PDMA); the kernel's VFIO document rests on ACS to part devices that are given to "
    "virtual machines, and NVIDIA's guide to GPUDirect RDMA in virtual machines sets it on these "
    "bridges, with ATS."
)


@check("acs", "PCIe Access Control Services", goals=WITH_GPU)
def judge(case: Case) -> Iterator[Finding]:
    """Does a bridge between GPU and NIC send what passes it to the CPU first?"""
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    if case.machine.know(virtual.virtual).is_vm:
        yield _guest()
        return
    if data_direct.functions(case.machine):
        yield from _data_direct.acs(case.machine)
        return
    low = _low(case)
    if not low:
        yield finding.n_a("no bridge between GPU and NIC")
    for those in _alike(bridges.bridges(case.machine, low), low):
        yield _judged(case.machine, those, low[those[0].address])


def _low(case: Case) -> dict[str, bool]:
    """The bridges on the way from each GPU to its NIC or DPU: whether one lies below the CPU."""
    low: dict[str, bool] = {}
    for pair in pairs.pairs(case.machine, case.goal):
        for one in pair.path.bridges:
            low[one] = low.get(one, False) or pair.path.near <= Near.PXB
    return low


def _alike(found: Sequence[Bridge], low: Mapping[str, bool]) -> list[list[Bridge]]:
    groups: dict[object, list[Bridge]] = {}
    for one in found:
        on = one.on if one.acs is not None else None
        groups.setdefault((one.why, on, low[one.address] or not on), []).append(one)
    return list(groups.values())


def _guest() -> Finding:
    return finding.unknown(
        "a virtual machine's own bridges",
        needed=_NEEDED,
        why="The bridges that count are the host's.",
        remedy=["# On the host:", _AS_ROOT],
        sources=[_GUIDE, _VM],
        disagree=_DISAGREE,
    )


def _judged(machine: Machine, those: list[Bridge], low: bool) -> Finding:
    names = [one.address for one in those]
    subject = ", ".join(names) if len(names) <= 4 else f"{len(names)} bridges"
    first = those[0]
    if first.why:
        lines = [f"sudo lspci -s {one} -vvv | grep ACSCtl" for one in names[:8]]
        return finding.unknown(
            "needs root", needed=_NEEDED, subject=subject, why=f"{first.why}.",
            remedy=[*_outside(machine), _AS_ROOT, *lines], sources=[_GUIDE],
        )  # fmt: skip
    if not _REDIRECT & set(first.on):
        bits = " ".join(f"{one}+" for one in first.on) or "all off"
        why = (
            "These bits check and block; they send nothing to the CPU that a switch could pass on."
        )
        return finding.ok(
            "no ACS" if first.acs is None else bits,
            needed=_NEEDED, subject=subject, why=why if first.on else "", sources=[_GUIDE, _LINUX],
        )  # fmt: skip
    return finding.warn(
        " ".join(f"{bit}+" for bit in first.on),
        needed=_NEEDED,
        subject=subject,
        why=_why(low),
        remedy=_remedy(machine, names),
        sources=[_GUIDE, _LINUX, _VFIO, _VM, _PARAMETERS],
        disagree=_DISAGREE,
    )


def _outside(machine: Machine) -> list[str]:
    """Where to type what needs root: a container's root may not read it either."""
    return ["# On the host, outside the container:"] * bool(machine.know(virtual.container).engine)


def _why(low: bool) -> str:
    if low:
        return (
            "What GPU and NIC send each other goes up to the CPU's root complex and back, or gets "
            "lost there, though a switch could pass it on."
        )
    return (
        "As far as is known no switch below the CPU joins GPU and NIC: the bytes pass the CPU in "
        "any case, and ACS may still block or slow them."
    )


def _remedy(machine: Machine, names: Sequence[str]) -> list[str]:
    """By the BIOS; till the next boot; by the kernel, for good."""
    return [
        "# In the BIOS: switch off ACS (Access Control) for these bridges, if it has that line",
        *(f"sudo setpci -s {one} ECAP_ACS+0x6.w=0000" for one in names),
        "# That holds till the next boot; for good, on the kernel's command line:",
        cmdline.added(machine, f'pci=disable_acs_redir="{";".join(names)}"', "acs"),
    ]
