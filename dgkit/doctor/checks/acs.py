"""ACS on the bridges between a GPU and a NIC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from .. import finding, sources
from ..facts import config_space, lspci, partners, pci, virtual
from ..facts.config_space import Acs
from ..facts.topology import Near
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check
from .topology import nothing

__all__ = ["judge"]

_GUIDE = sources.GPUNETIO("Installation and Setup, ACSCtl")
_VFIO = sources.VFIO("Groups, Devices, and IOMMUs")
_VM = sources.VM_TUNING("ATS and ACS configuration")
_PARAMETERS = sources.KERNEL_PARAMETERS("pci=disable_acs_redir=")
# These send a request up to the root complex which would have gone to its neighbour. The others
# only test or block (Linux, drivers/pci/p2pdma.c, pci_bridge_has_acs_redir).
_REDIRECT = frozenset({"ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl"})
_AS_ROOT = 'sudo "$(command -v dgkit)" doctor acs'  # sudo may have another PATH
_NEEDED = "redirection off (all ACSCtl -)"
_DISAGREE = (
    "The GPUNetIO guide wants ACS off; the kernel's VFIO document rests on it to part devices that "
    "are given to virtual machines, and NVIDIA's guide to GPUDirect RDMA in virtual machines sets "
    "it on these bridges, with ATS."
)


class _Bridge(msgspec.Struct, frozen=True):
    """`acs`: None for a bridge without. `why`: why it cannot be told. `low`: below the CPU."""

    address: str
    acs: Acs | None = None
    why: str = ""
    low: bool = True


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
    bridges = _bridges(case)
    if not bridges:
        yield finding.n_a("no bridge between GPU and NIC")
    for those in _alike(bridges):
        yield _judged(case, those)


def _bridges(case: Case) -> list[_Bridge]:
    """Those on the way from each GPU to its NIC or DPU, each once."""
    low: dict[str, bool] = {}
    for pair in partners.pairs(case.machine, case.goal):
        for one in pair.path.bridges:
            low[one] = low.get(one, False) or pair.path.near <= Near.PXB
    case.machine.read.together([f"raw {pci.DEVICES}/{one}/config" for one in low])
    return [_read(case.machine, one, below) for one, below in low.items()]


def _read(machine: Machine, address: str, low: bool) -> _Bridge:
    """By sysfs; by lspci only where sysfs has nothing, since it reads the same file."""
    reading = machine.read.raw(f"{pci.DEVICES}/{address}/config")
    if reading.ok and config_space.whole(reading.raw):
        return _Bridge(address, config_space.acs(reading.raw), low=low)
    if reading.ok:
        return _Bridge(
            address, why="Only root may read more than 64 bytes of config space", low=low
        )
    known = machine.know(_lspci).get(address)
    if known is None or known.denied:
        why = f"Without root there is no telling: {reading.why}"
        return _Bridge(address, why=why, low=low)
    return _Bridge(address, known.acs, low=low)


def _lspci(machine: Machine) -> dict[str, lspci.Details]:
    return lspci.details(machine.read.run("lspci", "-D", "-vvv").text)


def _alike(bridges: Sequence[_Bridge]) -> list[list[_Bridge]]:
    groups: dict[object, list[_Bridge]] = {}
    for one in bridges:
        on = one.acs.on if one.acs is not None else None
        groups.setdefault((one.why, on, one.low or not on), []).append(one)
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


def _judged(case: Case, those: list[_Bridge]) -> Finding:
    names = [one.address for one in those]
    subject = ", ".join(names) if len(names) <= 4 else f"{len(names)} bridges"
    first = those[0]
    if first.why:
        lines = [f"sudo lspci -s {one} -vvv | grep ACSCtl" for one in names[:8]]
        return finding.unknown(
            "needs root", needed=_NEEDED, subject=subject, why=f"{first.why}.",
            remedy=[_AS_ROOT, *lines], sources=[_GUIDE],
        )  # fmt: skip
    on = () if first.acs is None else first.acs.on
    if not _REDIRECT & set(on):
        found = "no ACS" if first.acs is None else " ".join(f"{one}+" for one in on) or "all off"
        why = "These bits check and block; they send nothing another way." if on else ""
        return finding.ok(found, needed=_NEEDED, subject=subject, why=why, sources=[_GUIDE])
    make = finding.fail if case.goal is Goal.GPUNETIO and first.low else finding.warn
    return make(
        " ".join(f"{bit}+" for bit in on),
        needed=_NEEDED,
        subject=subject,
        why=_why(first.low),
        remedy=_remedy(names),
        sources=[_GUIDE, _VFIO, _VM, _PARAMETERS],
        disagree=_DISAGREE,
    )


def _why(low: bool) -> str:
    if low:
        return (
            "What GPU and NIC send each other goes up to the CPU's root complex and back, or gets "
            "lost there, though a switch could pass it on."
        )
    return (
        "These bridges are root ports of different trees, or lie below them: the bytes pass the "
        "CPU in any case, and ACS may still block or slow them."
    )


def _remedy(names: Sequence[str]) -> list[str]:
    """By the BIOS; till the next boot; by the kernel, for good."""
    for_good = f"pci=disable_acs_redir={';'.join(names)}"
    return [
        "# In the BIOS: switch off ACS (Access Control) for these bridges, if it has that line",
        *(f"sudo setpci -s {one} ECAP_ACS+0x6.w=0000" for one in names),
        f"# That holds till the next boot; for good, on the kernel's command line: {for_good}",
    ]
