"""The BlueField: generation, mode, representors, the way to its Arm cores."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from .. import finding, sources
from ..facts import bluefield, firmware, mlxconfig, pci, system
from ..facts.bluefield import Mode, Tmfifo
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..facts.side import side
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..registry import check
from .modes import GUIDE, MODES, POWER, WANTED, Seen, judged, subject

NONE = "no BlueField"


@check("bluefield-present", "BlueField")
def present(case: Case) -> Iterator[Finding]:
    """Which BlueFields are here, and from which side are they seen?"""
    devices = case.machine.know(pci.tree)
    source = sources.DOCA_SUPPORT("Supported devices")
    if devices.why:
        yield finding.unknown("PCI devices not read", why=devices.why, sources=[source])
        return
    cards = case.machine.know(bluefield.cards)
    arm = case.machine.know(side) == "dpu"
    for card in cards:
        ports = len(card.functions)
        seen = "from its Arm cores" if arm else "from the host"
        found = f"{card.model}, {ports} port{'s' if ports > 1 else ''}, {seen}"
        if card.model == "BlueField" and case.goal in (Goal.ARM_DMA, Goal.GPUNETIO):
            yield finding.fail(
                found,
                needed="BlueField-2 or later",
                why="DOCA supports BlueField-2 and later; the first BlueField has no DOCA DMA.",
                subject=card.address,
                remedy=["# put a BlueField-2 or a BlueField-3 in its place"],
                sources=[source],
            )
        else:
            yield finding.ok(found, subject=card.address, sources=[source])
    if not cards:
        yield _nothing(case, arm)


def _nothing(case: Case, arm: bool) -> Finding:
    others = [one.model for one in case.machine.know(firmware.adapters)]
    missing = _ARM if arm else _MISSING.get(case.goal)
    if missing is None or (case.goal is Goal.GPUNETIO and others):
        return finding.n_a(f"none; there is {others[0]}" if others else NONE)
    return missing


_ARM = finding.fail(
    "Arm cores without their NIC",
    needed="the card's network functions",
    why="This is the Arm side of a BlueField, yet none of its network functions is on the PCI bus: "
    "its firmware did not start, or the card is in NIC mode.",
    remedy=["sudo dmesg | grep -i mlx5", f"# on the host: {POWER}"],
    sources=[MODES],
)
_MISSING = {
    Goal.ARM_DMA: finding.fail(
        NONE,
        needed="BlueField-2 or later",
        why="Nothing here has Arm cores that could move the bytes; the software DPU stands in for "
        "them.",
        remedy=["# put a BlueField-2 or -3 into this host, or go on with dgkit.connect()"],
        sources=[sources.DOCA_SUPPORT("Supported devices")],
    ),
    Goal.GPUNETIO: finding.fail(
        "no NIC of NVIDIA's",
        needed="BlueField-2, ConnectX-6 Dx or later",
        why="GPUNetIO drives a ConnectX, or a BlueField in NIC mode.",
        remedy=["# put a ConnectX-6 Dx or later into this host"],
        sources=[sources.GPUNETIO("ConnectX NIC")],
    ),
}


@check("bluefield-mode", "Mode of the BlueField", goals=WITH_GPU)
def mode(case: Case) -> Iterator[Finding]:
    """Is the card in the mode that the goal needs: DPU mode, or NIC mode?"""
    found = case.machine.know(bluefield.configs)
    if not found:
        yield finding.n_a(NONE)
    for card, settings in found:
        now, after = bluefield.mode(settings), bluefield.mode(settings, after=True)
        how = ""
        if now is Mode.UNKNOWN:
            now, how = _shown(case, card)
            after = now
        if case.machine.know(side) == "dpu" and bluefield.restricted(case.machine, card):
            how = f"{how} {_ZERO_TRUST}".strip()
        if now is Mode.UNKNOWN:
            yield _untold(case, card, settings)
        else:
            yield judged(case.goal, Seen(card, settings, now, after, how))


_ZERO_TRUST = (
    "The host is restricted (zero trust): it may not change the mode, so type the commands for it "
    "on the Arm side."
)


def _shown(case: Case, card: Adapter) -> tuple[Mode, str]:
    """The mode by what shows without root: representors, a running Arm side, the rshim driver."""
    alone = len(case.machine.know(bluefield.cards)) == 1  # so a DPU beside it is this card's
    arm = case.machine if case.machine.know(side) == "dpu" else case.dpu if alone else None
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
        remedy=_asking(case, [(card, settings)], bluefield.MODE),
        sources=[MODES],
    )


def _asking(
    case: Case, cards: Sequence[tuple[Adapter, Config]], names: tuple[str, ...]
) -> list[str]:
    """The commands by which root reads the settings; mstconfig is in every distribution."""
    queries = [f"sudo {shlex.join(mlxconfig.command(card.address, names))}" for card, _ in cards]
    if any(settings.fault == "absent" for _, settings in cards):
        install = system.install(case.machine, "mstflint", "mstflint")
        return [install, *(query.replace("mlxconfig", "mstconfig") for query in queries[:4])]
    return queries[:4]


@check("bluefield-link", "Link settings for GPUNetIO", goals={Goal.GPUNETIO}, sides=("host",))
def link(case: Case) -> Iterator[Finding]:
    """Do the ports speak Ethernet or InfiniBand, and do they keep their link as GPUNetIO asks?"""
    others = [one for one in case.machine.know(firmware.adapters) if not one.bluefield]
    asked = mlxconfig.queries(case.machine, [one.address for one in others], bluefield.LINKS)
    cards = [*case.machine.know(bluefield.configs), *zip(others, asked, strict=True)]
    if not cards:
        yield finding.n_a("no NIC of NVIDIA's")
    untold = [(card, settings) for card, settings in cards if settings.fault]
    yield from (_link(card, settings) for card, settings in cards if not settings.fault)
    if untold:
        yield finding.unknown(
            "link settings not read",
            why=untold[0][1].why,
            subject=", ".join(card.address for card, _ in untold),
            remedy=_asking(case, untold, ("LINK_TYPE_P1",)),
            sources=[GUIDE],
        )


_KEEP = {2: bluefield.KEEP, 1: bluefield.KEEP[::-1]}
_NAMES = {1: "InfiniBand", 2: "Ethernet"}


def _link(card: Adapter, settings: Config) -> Finding:
    source = GUIDE if card.bluefield else sources.GPUNETIO("ConnectX NIC")
    # a card that speaks Ethernet alone has no such setting
    kind = settings.now("LINK_TYPE_P1") or 2
    found, about = _NAMES.get(kind, f"type {kind}"), subject(card)
    keep, drop = _KEEP.get(kind, _KEEP[2])
    if not card.bluefield and (settings.now(keep) == 0 or settings.now(drop) == 1):
        return finding.warn(
            f"{found}, {keep}={settings.now(keep)}",
            needed=f"{keep}=1, {drop}=0",
            why="The guide asks for it before an application takes the NIC.",
            subject=about,
            remedy=[_set(card, (keep, 1), (drop, 0)), POWER],
            sources=[source],
        )
    if kind == 1:
        return finding.warn(
            found,
            needed="Ethernet for GPUNetIO Ethernet",
            why="GPUNetIO's RDMA and Verbs work over InfiniBand; its Ethernet part, and Accurate "
            "Send Scheduling, do not.",
            subject=about,
            remedy=["# only for GPUNetIO Ethernet:", _set(card, ("LINK_TYPE_P1", 2)), POWER],
            sources=[source],
        )
    why = "" if all(settings.now(name) == 1 for name in bluefield.SENDING) else _UNSCHEDULED
    return finding.ok(found, needed="its link type", why=why, subject=about, sources=[source])


_UNSCHEDULED = "Accurate Send Scheduling is off; a program that uses it wants " + (
    " ".join(f"{name}=1" for name in bluefield.SENDING) + "."
)


def _set(card: Adapter, *settings: tuple[str, int]) -> str:
    """A line that sets something on each port."""
    ports = ("P1", "P2")[: len(card.functions)]
    words = [f"{name[:-2]}{port}={value}" for name, value in settings for port in ports]
    return f"sudo mlxconfig -d {card.address} --yes set {' '.join(words)}"


@check("bluefield-representors", "Representors", goals={Goal.ARM_DMA}, sides=("dpu",))
def representors(case: Case) -> Iterator[Finding]:
    """Does the Arm side see the host's functions?"""
    source = sources.REPRESENTORS()
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
    source = sources.RSHIM("tmfifo_net0")
    if not arm and not case.machine.know(bluefield.cards):
        yield finding.n_a(NONE)
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
    name, source = found.nets[0], sources.RSHIM("tmfifo_net0")
    if found.addresses is None:
        return finding.unknown(f"{name}, address not read", why=found.why, sources=[source])
    if found.addresses:
        shown = ", ".join(found.addresses[:2])
        return finding.ok(f"{name} {shown}", needed=usual, sources=[source])
    return finding.warn(
        f"{name} without an address",
        needed=usual,
        why="The other side cannot be reached over it until both have an address.",
        remedy=[f"sudo ip addr add {usual} dev {name}", f"sudo ip link set {name} up"],
        sources=[source],
    )


def _rshim(case: Case, arm: bool) -> list[str]:
    if arm:
        return ["sudo modprobe mlxbf-tmfifo"]
    return [system.install(case.machine, "rshim", "rshim"), "sudo systemctl enable --now rshim"]
