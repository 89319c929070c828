# SPDX-License-Identifier: Apache-2.0
"""Firmware of BlueFields and ConnectX NICs."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import firmware
from ..facts.bluefield import side
from ..facts.doca import doca
from ..facts.firmware import Adapter
from ..facts.versions import version
from ..finding import Finding
from ..goals import BY_ARM, WITH_CARD, Goal
from ..machine import Case
from ..prerequisites import missing_device
from ..registry import check
from ..remedies import RESETS, RESETS_DISAGREE, SettingsAccess, power_cycle
from ._card_settings import card_label

_DMA_FIRMWARE = version(24, 33, 100)  # of BlueField-2; the first BlueField-3 firmware is newer
_TESTED_RELEASES = 2  # number of older firmware releases that a DOCA release is tested with
_SAMPLES = references.DMA_SAMPLES("Introduction")
_FIRMWARE_DISAGREE = (
    "The DMA sample guide 1.3 requires firmware 24.33.0100; each DOCA since includes its own (2.9: "
    "24.43, 3.2: 24.47) and is tested with it and the two before. Follow the installed DOCA."
)
_OLD = frozenset(
    {
        *("BlueField", "Connect-IB", "ConnectX-3", "ConnectX-3 Pro", "ConnectX-4", "ConnectX-4 Lx"),
        *("ConnectX-5", "ConnectX-5 Ex", "ConnectX-6"),
    }
)


@check(
    "firmware-version",
    "Firmware of the NIC",
    asks="Is each card's firmware new enough for the goal and for the installed DOCA?",
    goals=WITH_CARD,
)
def _firmware_version(case: Case) -> Iterator[Finding]:
    cards = [
        card
        for card in case.machine.know(firmware.adapters)
        if card.bluefield or case.goal not in BY_ARM
    ]
    if not cards:
        what = "BlueField" if case.goal in BY_ARM else "NVIDIA NIC"
        yield missing_device(case.machine, f"no {what}")
    # if any card is new enough for GPUNetIO, older cards do not matter
    relevant = [card for card in cards if card.model not in _OLD or case.goal is not Goal.GPUNETIO]
    yield from (
        finding.about(card_label(card), _judge_card(case, card)) for card in relevant or cards
    )


def _judge_card(case: Case, card: Adapter) -> Finding:
    found = card.firmware
    if found is None:
        return finding.unknown(
            "firmware not read",
            why=card.source or "Neither the drivers nor flint report it.",
            remedy=[f"sudo flint -d {card.address} q"],
            sources=[references.DOCA_SUPPORT("Firmware")],
        )
    if case.goal in BY_ARM and card.model == "BlueField-2" and found < _DMA_FIRMWARE:
        return finding.fail(
            str(found),
            needed="24.33.0100",
            why="DOCA DMA requires it.",
            remedy=_update(case, card),
            sources=[_SAMPLES, RESETS],
            disagree=f"{_FIRMWARE_DISAGREE} {RESETS_DISAGREE}",
        )
    if case.goal is Goal.GPUNETIO and card.model in _OLD:
        return finding.warn(
            f"{found}, {card.model}",
            needed="ConnectX-6 Dx or later",
            why="NVIDIA recommends no older NIC for GPUNetIO.",
            remedy=["# use a ConnectX-6 Dx, ConnectX-7, BlueField-2 or later"],
            sources=[references.GPUNETIO("ConnectX NIC")],
        )
    disagree = _FIRMWARE_DISAGREE if case.goal in BY_ARM else ""
    installed = case.machine.know(doca).version
    bundled = firmware.BUNDLED.get((*installed.parts, 0)[:2]) if installed else None
    support = [references.DOCA_SUPPORT("Bundled firmware"), references.DOCA_FIRMWARE()]
    if bundled is None or found.parts[0] not in firmware.WITH_DOCA or len(found.parts) < 2:
        return finding.ok(str(found), sources=support, disagree=disagree)
    needed = f"{found.parts[0]}.{bundled} (DOCA {installed})"
    if found.parts[1] >= bundled - _TESTED_RELEASES:
        return finding.ok(str(found), needed=needed, sources=support, disagree=disagree)
    return finding.warn(
        str(found),
        needed=needed,
        why="It is more than two releases older than the firmware of this DOCA, which was not "
        "tested with it.",
        remedy=_update(case, card),
        sources=[*support, RESETS],
        disagree=f"{disagree} {RESETS_DISAGREE}".strip(),
    )


def _update(case: Case, card: Adapter) -> list[str]:
    access = SettingsAccess(on_arm=case.machine.know(side) == "dpu")
    line = f"sudo mlxfwmanager -d {card.address} --online -u"
    return [line, *power_cycle(card.address, access, arm_running=card.bluefield)]
