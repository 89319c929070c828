"""The link types of the cards that GPUNetIO may drive."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .. import finding, references
from ..facts import bluefield, firmware, mlxconfig, system
from ..facts.bluefield import Mode
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..finding import Finding
from ..machine import Case, Machine
from ._bluefield_mode import GUIDE, subject
from ._power_cycle import RESETS, TWO_WAYS, Where, cycle

__all__ = ["asking", "cards", "infiniband", "judged"]

_Card = tuple[Adapter, Config]
_KEEP = {2: bluefield.KEEP, 1: bluefield.KEEP[::-1]}
_NAMES = {1: "InfiniBand", 2: "Ethernet"}
_ETHERNET, _INFINIBAND = 2, 1


def cards(machine: Machine) -> list[_Card]:
    """Each card with its settings; no BlueField that is no NIC now, where there are others."""
    others = [one for one in machine.know(firmware.adapters) if not one.bluefield]
    asked = mlxconfig.queries(machine, [one.address for one in others], bluefield.LINKS)
    known = [*machine.know(bluefield.configs), *zip(others, asked, strict=True)]
    able = (Mode.NIC, Mode.UNKNOWN)
    nics = [one for one in known if not one[0].bluefield or bluefield.mode(one[1]) in able]
    return nics or known


def asking(case: Case, asked: Sequence[_Card], names: tuple[str, ...]) -> list[str]:
    """The commands by which root reads the settings; mstconfig is in every distribution."""
    queries = [f"sudo {shlex.join(mlxconfig.command(card.address, names))}" for card, _ in asked]
    if any(settings.fault == "absent" for _, settings in asked):
        install = system.install(case.machine, "mstflint", "mstflint")
        return [install, *(query.replace("mlxconfig", "mstconfig") for query in queries[:4])]
    return queries[:4]


def infiniband(case: Case) -> _Card | None:
    """The first card, if each speaks InfiniBand on all its ports."""
    known = cards(case.machine)
    kinds = [
        {settings.now("LINK_TYPE_P1"), settings.now("LINK_TYPE_P2")} - {None}
        for _, settings in known
    ]
    return known[0] if kinds and all(one == {_INFINIBAND} for one in kinds) else None


def to_ethernet(card: Adapter, settings: Config, source: references.Source) -> Finding:
    """What GPUNetIO Ethernet says of a card that speaks InfiniBand."""
    return finding.fail(
        "InfiniBand",
        needed="Ethernet",
        why="GPUNetIO's Ethernet part sends and receives Ethernet packets, and the ports speak "
        "InfiniBand; the other parts work over it.",
        subject=subject(card),
        remedy=[
            _set(card, settings, ("LINK_TYPE_P1", _ETHERNET)),
            # in NIC mode the Arm cores of a BlueField-2 run on
            *cycle(card.address, Where(), running=card.model == "BlueField-2"),
        ],
        sources=[source, RESETS],
        disagree=TWO_WAYS,
    )


def judged(card: Adapter, settings: Config) -> Finding:
    """What a card's settings mean."""
    source = GUIDE if card.bluefield else references.GPUNETIO("ConnectX NIC")
    # a card that speaks Ethernet alone has no such setting
    kind = settings.now("LINK_TYPE_P1") or _ETHERNET
    found, about = _NAMES.get(kind, f"type {kind}"), subject(card)
    keep, drop = _KEEP.get(kind, _KEEP[2])
    if not card.bluefield and (settings.now(keep) == 0 or settings.now(drop) == 1):
        return finding.warn(
            f"{found}, {keep}={settings.now(keep)}, {drop}={settings.now(drop)}"[:45],
            needed=f"{keep}=1, {drop}=0",
            why="The guide asks for it before an application takes the NIC.",
            subject=about,
            remedy=[
                _set(card, settings, (keep, 1), (drop, 0)),
                *cycle(card.address, Where(), running=False),
            ],
            sources=[source, RESETS],
            disagree=TWO_WAYS,
        )
    if kind == _INFINIBAND:
        why = _OVER_INFINIBAND
    else:
        why = "" if all(settings.now(name) == 1 for name in bluefield.SENDING) else _UNSCHEDULED
    return finding.ok(found, needed="its link type", why=why, subject=about, sources=[source])


_OVER_INFINIBAND = (
    "GPUNetIO's RDMA and Verbs work over it; its Ethernet part, and Accurate Send Scheduling, do "
    "not: see gpunetio-ethernet."
)
_UNSCHEDULED = "Accurate Send Scheduling is off; a program that uses it wants " + (
    " ".join(f"{name}=1" for name in bluefield.SENDING) + "."
)


def _set(card: Adapter, known: Config, *settings: tuple[str, int]) -> str:
    """A line that sets something on each port, of what the card showed alone.

    A ConnectX is asked of its first port only: there the second follows by its function.
    """
    second = "LINK_TYPE_P2" in known.settings if card.bluefield else len(card.functions) > 1
    words = [
        f"{name[:-2]}{port}={value}"
        for name, value in settings
        if name in known.settings
        for port in (("P1", "P2") if second else ("P1",))
    ]
    return f"sudo mlxconfig -d {card.address} --yes set {' '.join(words)}"
