"""Link types of the NICs that GPUNetIO may drive."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .. import finding, references
from ..facts import bluefield, firmware, mlxconfig, rdma
from ..facts.bluefield import Mode
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..finding import Finding
from ..machine import Case, Machine
from ..remedies import RESETS, RESETS_DISAGREE, SettingsAccess, power_cycle
from ._bluefield_mode import GUIDE, card_label

_Card = tuple[Adapter, Config]
_KEEP = {2: bluefield.KEEP_LINK_UP, 1: bluefield.KEEP_LINK_UP[::-1]}
_NAMES = {1: "InfiniBand", 2: "Ethernet"}
_ETHERNET, _INFINIBAND = 2, 1


def nics(machine: Machine) -> list[_Card]:
    """Return each card with its settings; omit BlueFields in DPU mode if there are other cards."""
    cards = _all(machine)
    may_be_nic = (Mode.NIC, Mode.UNKNOWN)
    found = [
        (card, settings)
        for card, settings in cards
        if not card.bluefield or bluefield.mode(settings) in may_be_nic
    ]
    return found or cards


def _all(machine: Machine) -> list[_Card]:
    others = [card for card in machine.know(firmware.adapters) if not card.bluefield]
    configs = mlxconfig.queries(machine, [card.address for card in others], bluefield.LINKS)
    return [*machine.know(bluefield.configs), *zip(others, configs, strict=True)]


def query_commands(cards: Sequence[_Card], names: tuple[str, ...]) -> list[str]:
    """Return the commands that read the settings as root."""
    queries = [f"sudo {shlex.join(mlxconfig.command(card.address, names))}" for card, _ in cards]
    return queries[:4]  # where mlxconfig is missing, remedies.py replaces it by mstconfig


def infiniband_only(case: Case) -> _Card | None:
    """Return the first card if all ports of all cards are InfiniBand, else None."""
    cards = nics(case.machine)
    types = [
        {settings.now("LINK_TYPE_P1"), settings.now("LINK_TYPE_P2")} - {None}
        for _, settings in cards
    ]
    return cards[0] if types and all(ports == {_INFINIBAND} for ports in types) else None


def to_ethernet(machine: Machine, address: str) -> list[str]:
    """Return how to set the ports of an InfiniBand function to Ethernet, if its card can."""
    known = [(card, now) for card, now in _all(machine) if address in card.functions]
    if not known or known[0][1].now("LINK_TYPE_P1") != _INFINIBAND:
        return []
    card, settings = known[0]
    return [
        "# If the switch is an Ethernet switch, the ports have the wrong type:",
        f"# {_set(card, settings, ('LINK_TYPE_P1', _ETHERNET))}, and a power cycle",
    ]


def ethernet_required(card: Adapter, settings: Config, source: references.Source) -> Finding:
    """Return the finding of gpunetio-ethernet on an InfiniBand card."""
    return finding.fail(
        "InfiniBand",
        needed="Ethernet",
        why="GPUNetIO Ethernet sends and receives Ethernet packets, and the ports are InfiniBand; "
        "the other parts of GPUNetIO work over it.",
        subject=card_label(card),
        remedy=[
            _set(card, settings, ("LINK_TYPE_P1", _ETHERNET)),
            # in NIC mode the Arm cores of a BlueField-2, but not of a BlueField-3, keep running
            *power_cycle(card.address, SettingsAccess(), arm_running=card.model == "BlueField-2"),
        ],
        sources=[source, RESETS],
        disagree=RESETS_DISAGREE,
    )


def judge_link(card: Adapter, settings: Config) -> Finding:
    """Return the finding of bluefield-link on a card whose settings were read."""
    source = GUIDE if card.bluefield else references.GPUNETIO("ConnectX NIC")
    # an Ethernet-only card has no such setting
    link_type = settings.now("LINK_TYPE_P1") or _ETHERNET
    found, about = _NAMES.get(link_type, f"type {link_type}"), card_label(card)
    keep, drop = _KEEP.get(link_type, _KEEP[2])
    if not card.bluefield and (settings.now(keep) == 0 or settings.now(drop) == 1):
        return finding.warn(
            f"{found}, {keep}={settings.now(keep)}, {drop}={settings.now(drop)}"[:45],
            needed=f"{keep}=1, {drop}=0",
            why="The guide requires it before an application takes over the NIC.",
            subject=about,
            remedy=[
                _set(card, settings, (keep, 1), (drop, 0)),
                *power_cycle(card.address, SettingsAccess(), arm_running=False),
            ],
            sources=[source, RESETS],
            disagree=RESETS_DISAGREE,
        )
    if link_type == _INFINIBAND:
        why = _OVER_INFINIBAND
    else:
        why = (
            "" if all(settings.now(name) == 1 for name in bluefield.TX_SCHEDULING) else _UNSCHEDULED
        )
    return finding.ok(found, needed="its link type", why=why, subject=about, sources=[source])


def judge_port(machine: Machine, card: Adapter, settings: Config) -> Finding | None:
    """Return the finding of bluefield-link by active ports of a ConnectX; None without them."""
    known = [machine.know(rdma.devices).at(address) for address in card.functions]
    layers = {
        port.link_layer
        for device in filter(None, known)
        for port in device.ports
        if port.state == "ACTIVE"
    } - {""}
    if card.bluefield or len(layers) != 1:
        return None
    why = f"According to its active port. Whether it keeps its link is not known: {settings.why}"
    sources = [references.GPUNETIO("ConnectX NIC")]
    return finding.ok(
        layers.pop(), needed="its link type", why=finding.sentence(why), subject=card_label(card),
        sources=sources,
    )  # fmt: skip


_OVER_INFINIBAND = (
    "GPUNetIO RDMA and Verbs work over it; GPUNetIO Ethernet and Accurate Send Scheduling do not: "
    "see gpunetio-ethernet."
)
_UNSCHEDULED = "Accurate Send Scheduling is off; a program that uses it needs " + (
    " ".join(f"{name}=1" for name in bluefield.TX_SCHEDULING) + "."
)


def _set(card: Adapter, known: Config, *settings: tuple[str, int]) -> str:
    """Return the command that changes settings on each port, if the card listed them.

    A ConnectX is queried only for its first port; the number of its functions shows whether it has
    a second port.
    """
    second = "LINK_TYPE_P2" in known.settings if card.bluefield else len(card.functions) > 1
    words = [
        f"{name[:-2]}{port}={value}"
        for name, value in settings
        if name in known.settings
        for port in (("P1", "P2") if second else ("P1",))
    ]
    return f"sudo mlxconfig -d {card.address} --yes set {' '.join(words)}"
