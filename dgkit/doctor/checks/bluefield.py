"""The BlueField: generation, mode, representors, the way to its Arm cores."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from .. import finding, references
from ..facts import bluefield, firmware, pci, system, virtual
from ..facts.bluefield import Mode, Tmfifo
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..facts.side import side
from ..finding import Finding, Verdict
from ..goals import WITH_GPU, Goal
from ..machine import Case, Machine
from ..registry import check
from . import _link_type
from ._any_of import one_will_do
from ._bluefield_mode import GUIDE, MODES, WANTED, Seen, judged, subject
from ._per_gpu import none
from ._power_cycle import Where

NONE = "no BlueField"


@check("bluefield-present", "BlueField")
def present(case: Case) -> Iterator[Finding]:
    """Which BlueFields are here, and from which side are they seen?"""
    devices = case.machine.know(pci.tree)
    source = references.DOCA_SUPPORT("Supported devices")
    if devices.why:
        yield finding.unknown("PCI devices not read", why=devices.why, sources=[source])
        return
    arm = case.machine.know(side) == "dpu"
    said = [_card(case, card, arm) for card in case.machine.know(bluefield.cards)]
    yield from one_will_do(said, _connectx(case)) if said else [_nothing(case, arm)]


def _card(case: Case, card: Adapter, arm: bool) -> Finding:
    source = references.DOCA_SUPPORT("Supported devices")
    ports = len(card.functions)
    seen = "from its Arm cores" if arm else "from the host"
    found = f"{card.model}, {ports} port{'s' if ports > 1 else ''}, {seen}"
    if card.model != "BlueField" or case.goal not in (Goal.ARM_DMA, Goal.GPUNETIO):
        return finding.ok(found, subject=card.address, sources=[source])
    return finding.fail(
        found,
        needed="BlueField-2 or later",
        why="DOCA supports BlueField-2 and later; the first BlueField has no DOCA DMA.",
        subject=card.address,
        remedy=["# put a BlueField-2 or a BlueField-3 in its place"],
        sources=[source],
    )


def _nothing(case: Case, arm: bool) -> Finding:
    others = [one.model for one in case.machine.know(firmware.adapters)]
    missing = _ARM if arm else _MISSING.get(case.goal)
    if missing is None or (case.goal is Goal.GPUNETIO and others):
        return finding.n_a(f"none; there is {others[0]}" if others else NONE)
    if not arm and case.machine.know(virtual.virtual).is_vm:
        return msgspec.structs.replace(
            missing, remedy=(f"# have one passed through: {missing.needed}",)
        )
    return missing


_ARM = finding.fail(
    "Arm cores without their NIC",
    needed="the card's network functions",
    why="This is the Arm side of a BlueField, yet none of its network functions is on the PCI bus: "
    "its firmware did not start, or the card is in NIC mode.",
    remedy=[
        "sudo dmesg | grep -i mlx5",
        "# on the host: shut it down, and switch its power off and on",
    ],
    sources=[MODES],
)
_MISSING = {
    Goal.ARM_DMA: finding.fail(
        NONE,
        needed="BlueField-2 or later",
        why="Nothing here has Arm cores that could move the bytes; the software DPU stands in for "
        "them.",
        remedy=["# put a BlueField-2 or -3 into this host, or go on with dgkit.connect()"],
        sources=[references.DOCA_SUPPORT("Supported devices")],
    ),
    Goal.GPUNETIO: finding.fail(
        "no NIC of NVIDIA's",
        needed="BlueField-2, ConnectX-6 Dx or later",
        why="GPUNetIO drives a ConnectX, or a BlueField in NIC mode.",
        remedy=["# put a ConnectX-6 Dx or later into this host"],
        sources=[references.GPUNETIO("ConnectX NIC")],
    ),
}


@check("bluefield-mode", "Mode of the BlueField", goals=WITH_GPU)
def mode(case: Case) -> Iterator[Finding]:
    """Is the card in the mode that the goal needs: DPU mode, or NIC mode?"""
    arm = case.machine.know(side) == "dpu"
    if not case.machine.know(bluefield.cards):
        yield none(case.machine, NONE)
    elif arm and case.host is not None and case.goal is Goal.GPUNETIO:
        yield finding.n_a("GPUNetIO runs on the host")
    else:
        there = _failing(case) if arm else set()
        for one in one_will_do(_modes(case, arm), "" if arm else _connectx(case)):
            twice = one.verdict is Verdict.FAIL and one.found in there
            yield finding.n_a(one.found, why="As the host says.") if twice else one


def _connectx(case: Case) -> str:
    """A card that GPUNetIO drives in any mode of the BlueFields, "" if there is none."""
    others = [one for one in case.machine.know(firmware.adapters) if not one.bluefield]
    return subject(others[0]) if others and case.goal is Goal.GPUNETIO else ""


def _failing(case: Case) -> set[str]:
    """The wrong modes that the check finds on the host, where that is known."""
    if case.host is None:
        return set()
    host = msgspec.structs.replace(case, machine=case.host)
    return {one.found for one in _modes(host, arm=False) if one.verdict is Verdict.FAIL}


def _modes(case: Case, arm: bool) -> list[Finding]:
    known = case.machine.know(bluefield.configs)
    return [_mode(case, card, settings, arm) for card, settings in known]


def _mode(case: Case, card: Adapter, settings: Config, arm: bool) -> Finding:
    now, after = bluefield.mode(settings), bluefield.mode(settings, after=True)
    how, where = "", Where(arm=arm)
    if now is Mode.UNKNOWN:
        now, how = _shown(case, card)
        after = now
    locked = bluefield.locked(case.machine if arm else _own_arm(case))
    if locked is not None and arm:
        how = f"{how} {_ZERO_TRUST}".strip()
    elif locked is not None:
        where = Where(at=locked.address)
    if now is Mode.UNKNOWN:
        return _untold(case, card, settings)
    return judged(case.goal, Seen(card, settings, now, after, how, where))


def _own_arm(case: Case) -> Machine | None:
    """The Arm side of the host's only card."""
    return case.dpu if len(case.machine.know(bluefield.cards)) == 1 else None


_ZERO_TRUST = (
    "The host is restricted (zero trust): it may not change the mode, so type the commands for it "
    "on the Arm side."
)


def _shown(case: Case, card: Adapter) -> tuple[Mode, str]:
    """The mode by what shows without root: representors, a running Arm side, the rshim driver."""
    arm = case.machine if case.machine.know(side) == "dpu" else _own_arm(case)
    if arm is not None:
        if any(one.host for one in arm.know(bluefield.representors)):
            return Mode.DPU, "The Arm side has representors of the host's functions."
        if card.model == "BlueField-3":
            return Mode.DPU, "The Arm cores run; in NIC mode those of a BlueField-3 do not."
    said = case.machine.know(bluefield.rshim).get(card.address.rpartition(".")[0], Mode.UNKNOWN)
    return said, "The rshim driver says so."


def _untold(case: Case, card: Adapter, settings: Config) -> Finding:
    wanted = WANTED.get(case.goal)
    if wanted is None:
        why = "RDMA from the host works in DPU mode and in NIC mode."
        return finding.ok("not read", why=why, subject=subject(card), sources=[MODES])
    return finding.unknown(
        "mode not read",
        needed=str(wanted),
        why=settings.why or "mlxconfig tells nothing of INTERNAL_CPU_OFFLOAD_ENGINE.",
        subject=subject(card),
        remedy=_link_type.asking(case, [(card, settings)], bluefield.MODE),
        sources=[MODES],
    )


@check("bluefield-link", "Link settings for GPUNetIO", goals={Goal.GPUNETIO}, sides=("host",))
def link(case: Case) -> Iterator[Finding]:
    """Do the ports speak Ethernet or InfiniBand, and do they keep their link as GPUNetIO asks?"""
    known = _link_type.cards(case.machine)
    if not known:
        yield none(case.machine, "no NIC of NVIDIA's")
    untold = [(card, settings) for card, settings in known if settings.fault]
    yield from (_link_type.judged(card, settings) for card, settings in known if not settings.fault)
    if untold:
        yield finding.unknown(
            "link settings not read",
            needed="the link type, KEEP_*_LINK_UP",
            why=untold[0][1].why,
            subject=", ".join(card.address for card, _ in untold),
            # all settings: a card that speaks Ethernet alone has no LINK_TYPE_P1
            remedy=_link_type.asking(case, untold, ()),
            sources=[GUIDE],
        )


@check("bluefield-representors", "Representors", goals={Goal.ARM_DMA}, sides=("dpu",))
def representors(case: Case) -> Iterator[Finding]:
    """Does the Arm side see the host's functions?"""
    source = references.REPRESENTORS()
    listing = case.machine.read.names("/sys/class/net")
    if not listing.ok and not listing.absent:
        yield finding.unknown("interfaces not read", why=listing.why, sources=[source])
        return
    known = case.machine.know(bluefield.representors)
    shown = ", ".join(one.net for one in known[:5]) or "none"
    if any(one.host for one in known):
        yield finding.ok(shown, needed="pf0hpf", sources=[source])
        return
    cards = case.machine.know(bluefield.cards)
    address = cards[0].address if cards else "0000:03:00.0"
    yield finding.warn(
        shown,
        needed="pf0hpf",
        why="Without a representor of the host's function the Arm side is in NIC mode, or its "
        "switch is not in switchdev mode; DOCA then finds no host to talk to.",
        remedy=[
            f"sudo devlink dev eswitch show pci/{address}",
            f"sudo devlink dev eswitch set pci/{address} mode switchdev",
        ],
        sources=[source],
    )


@check("bluefield-tmfifo", "Network to the Arm cores", goals={Goal.ARM_DMA})
def tmfifo(case: Case) -> Iterator[Finding]:
    """Have host and Arm cores the network over rshim, with its usual addresses?"""
    arm = case.machine.know(side) == "dpu"
    source = references.RSHIM("tmfifo_net0")
    if not arm and not case.machine.know(bluefield.cards):
        yield none(case.machine, NONE)
        return
    found = case.machine.know(bluefield.tmfifo)
    if not found.nets and found.why:
        yield finding.unknown("interfaces not read", why=found.why, sources=[source])
    elif not found.nets:
        yield finding.warn(
            "no tmfifo_net0",
            needed="tmfifo_net0",
            why="Host and Arm cores have no network over PCIe; any other between them will do.",
            remedy=_rshim(case, arm),
            sources=[source],
        )
    else:
        yield _address(found, "192.168.100.2/30" if arm else "192.168.100.1/30")


def _address(found: Tmfifo, usual: str) -> Finding:
    name, source = found.nets[0], references.RSHIM("tmfifo_net0")
    if found.addresses is None:
        return finding.unknown(f"{name}, address not read", why=found.why, sources=[source])
    if found.addresses:
        shown = ", ".join(found.addresses[:2])
        return finding.ok(f"{name} {shown}", needed=usual, sources=[source])
    return finding.warn(
        f"{name} without an address",
        needed=usual,
        why="The other side cannot be reached over it until both have an address.",
        remedy=[
            f"sudo ip addr add {usual} dev {shlex.quote(name)}",
            f"sudo ip link set {shlex.quote(name)} up",
        ],
        sources=[source],
    )


def _rshim(case: Case, arm: bool) -> list[str]:
    if case.machine.know(virtual.container).engine:
        return ["# outside of this container: install rshim and start its service"]
    if arm:
        return ["sudo modprobe mlxbf-tmfifo"]
    return [system.install(case.machine, "rshim", "rshim"), "sudo systemctl enable --now rshim"]
