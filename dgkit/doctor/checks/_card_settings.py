# SPDX-License-Identifier: Apache-2.0
"""Firmware settings of cards: the mode of a BlueField, and the link types of NICs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import msgspec

from .. import finding, references
from ..facts import bluefield, firmware, mlxconfig, rdma
from ..facts.bluefield import Mode
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..finding import Finding
from ..goals import BY_ARM, Goal
from ..machine import Case, Machine
from ..remedies import RESETS, RESETS_DISAGREE, SettingsAccess, power_cycle

MODES = references.MODES("DPU mode, NIC mode")
GUIDE = references.GPUNETIO("BlueField NIC")
_ONE_MODE = (
    "The GPUNetIO guide requires NIC mode, in which the Arm cores take no part; DMA by the Arm "
    "cores (modes of operation) requires DPU mode. A card is in one mode at a time: use two cards, "
    "or change the mode and power-cycle."
)
_NIC_SETTINGS = (
    "The GPUNetIO guide sets all five INTERNAL_CPU_* for BlueField-2 and -3; the modes of "
    "operation name only INTERNAL_CPU_OFFLOAD_ENGINE for BlueField-3."
)


def card_label(card: Adapter) -> str:
    """Return a card's model and address, for people."""
    return f"{card.model} ({card.address})"


class ModeState(msgspec.Struct, frozen=True):
    """Mode of a card.

    Attributes:
        card: The card.
        settings: Its firmware settings.
        now: Current mode.
        after: Mode after the next power cycle.
        evidence: Sentence on how the mode was determined, if not from the settings.
        access: Side on which the settings can be changed.
    """

    card: Adapter
    settings: Config
    now: Mode
    after: Mode
    evidence: str = ""
    access: SettingsAccess = SettingsAccess()


REQUIRED_MODE = {**dict.fromkeys(BY_ARM, Mode.DPU), Goal.GPUNETIO: Mode.NIC}
_BLOCKS = {
    **dict.fromkeys(
        BY_ARM, "Outside DPU mode the Arm cores own nothing of the card and cannot move bytes."
    ),
    Goal.GPUNETIO: "Outside NIC mode the host has no ConnectX that GPUNetIO could drive.",
}
_NIC_SERVES = "In NIC mode it serves --goal rdma and --goal gpunetio."


def judge_mode(goal: Goal, state: ModeState) -> Finding:
    """Return the finding on a known mode. RDMA from the host works in any mode."""
    required = REQUIRED_MODE.get(goal)
    sources = [MODES, GUIDE]
    if required is None:
        found = str(state.now)
        subject = card_label(state.card)
        return finding.ok(found, subject=subject, why=state.evidence, sources=sources)
    right = state.now is required
    result = _right_mode(state, required) if right else _wrong_mode(goal, state, required)
    make, found, why, remedy = result
    disagree = [_ONE_MODE]
    if required is Mode.NIC and state.card.model == "BlueField-3":
        disagree.append(_NIC_SETTINGS)
    if remedy:
        disagree.append(RESETS_DISAGREE)
        sources.append(RESETS)
    return make(
        found,
        needed=str(required),
        why=why,
        subject=card_label(state.card),
        remedy=remedy,
        sources=sources,
        disagree=" ".join(disagree),
    )


_Result = tuple[Callable[..., Finding], str, str, list[str]]  # verdict, found, why, remedy


def _wrong_mode(goal: Goal, state: ModeState, required: Mode) -> _Result:
    if state.after is required:
        why = f"{required} is set, and takes effect after a power cycle. {_BLOCKS[goal]}"
        found = f"{state.now}; {state.after} at the next boot"
        return finding.fail, found, why, _power_cycle(state)
    other = _NIC_SERVES if state.now is Mode.NIC else ""
    why = " ".join(text for text in (_BLOCKS[goal], state.evidence, other) if text)
    return finding.fail, str(state.now), why, [_change(state, required), *_power_cycle(state)]


def _right_mode(state: ModeState, required: Mode) -> _Result:
    if state.after is not required:
        found = f"{state.now}; {state.after} at the next boot"
        why = f"It works until the next power cycle, which puts the card in {state.after}."
        return finding.warn, found, why, [_change(state, required)]
    wrong = [name for name in bluefield.MODE[1:4] if _is_wrong(state, required, name)]
    if wrong:
        owner = "host" if required is Mode.NIC else "Arm side"
        why = f"In {required} the {owner} owns all of these."
        remedy = [_change(state, required), *_power_cycle(state)]
        return finding.warn, f"{state.now}, {len(wrong)} settings of the other", why, remedy
    return finding.ok, str(state.now), state.evidence, []


def _is_wrong(state: ModeState, required: Mode, name: str) -> bool:
    """Return whether a setting names the wrong owner (ECPF is 0, EXT_HOST_PF is 1).

    Only BlueField-2 evaluates these settings; BlueField-3 evaluates only
    INTERNAL_CPU_OFFLOAD_ENGINE.
    """
    value = state.settings.now(name)
    expected = 1 if required is Mode.NIC else 0
    return state.card.model == "BlueField-2" and value is not None and value != expected


def _power_cycle(state: ModeState) -> list[str]:
    # in NIC mode the Arm cores of a BlueField-3 do not run
    running = state.card.bluefield and (state.now, state.card.model) != (Mode.NIC, "BlueField-3")
    return power_cycle(state.card.address, state.access, arm_running=running)


def _change(state: ModeState, required: Mode) -> str:
    """Return the guide's command for NIC mode, which keeps the link types, or its reverse.

    The command changes only settings that the card listed, since mlxconfig refuses a command with
    an unknown setting. If the card listed none, it changes the guide's five settings.
    """
    owner, shown = 1 if required is Mode.NIC else 0, state.settings.settings
    links = ["LINK_TYPE_P1", "LINK_TYPE_P2"] if owner else []
    words = [f"{name}={state.settings.now(name) or 2}" for name in links if name in shown]
    known = [name for name in bluefield.MODE if name in shown] or bluefield.MODE
    words += [f"{name}={1 if name == bluefield.MODE[0] else owner}" for name in known]
    return state.access.command(
        lambda address: f"sudo mlxconfig -d {address} --yes set {' '.join(words)}",
        state.card.address,
    )


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
    """Judge the link type of a ConnectX by its active ports; return None if it has none."""
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
