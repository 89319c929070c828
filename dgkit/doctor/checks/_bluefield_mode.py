"""Verdict on the mode of a BlueField, and the command that changes it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .. import finding, references
from ..facts import bluefield
from ..facts.bluefield import Mode
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..finding import Finding
from ..goals import BY_ARM, Goal
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
