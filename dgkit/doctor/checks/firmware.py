"""Firmware of BlueFields and ConnectX NICs."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import firmware
from ..facts.doca import doca
from ..facts.firmware import Adapter
from ..facts.side import side
from ..facts.versions import Version, version
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..registry import check
from ._bluefield_mode import subject
from ._per_gpu import none
from ._power_cycle import RESETS, TWO_WAYS, Where, cycle

DMA_NEEDS = version(24, 33, 100)  # of a BlueField-2; a BlueField-3 began later
OFTEN_TESTED = 2  # releases of firmware before its own that a DOCA was tested with
_SAMPLES = references.DMA_SAMPLES("Introduction")
TWO_DOCUMENTS = (
    "The DMA sample guide 1.3 asks for firmware 24.33.0100; each DOCA since brings its own (2.9: "
    "24.43, 3.2: 24.47) and is tested with that and the two before. Go by the DOCA that is "
    "installed."
)
_OLD = frozenset(
    {
        *("BlueField", "Connect-IB", "ConnectX-3", "ConnectX-3 Pro", "ConnectX-4", "ConnectX-4 Lx"),
        *("ConnectX-5", "ConnectX-5 Ex", "ConnectX-6"),
    }
)


@check("firmware-version", "Firmware of the NIC", goals=WITH_GPU)
def firmware_version(case: Case) -> Iterator[Finding]:
    """Is each card's firmware new enough, for the goal and for the DOCA that is here?"""
    cards = [
        card
        for card in case.machine.know(firmware.adapters)
        if card.bluefield or case.goal is not Goal.ARM_DMA
    ]
    if not cards:
        what = "BlueField" if case.goal is Goal.ARM_DMA else "NIC of NVIDIA's"
        yield none(case.machine, f"no {what}")
    # where one card is of a generation for GPUNetIO, the older ones need not be
    wanted = [card for card in cards if card.model not in _OLD or case.goal is not Goal.GPUNETIO]
    yield from (_judged(case, card) for card in wanted or cards)


def _judged(case: Case, card: Adapter) -> Finding:
    about, found = subject(card), card.firmware
    if found is None:
        return finding.unknown(
            "firmware not read",
            why=card.source or "neither the drivers nor flint tell it.",
            subject=about,
            remedy=[f"sudo flint -d {card.address} q"],
            sources=[references.DOCA_SUPPORT("Firmware")],
        )
    if case.goal is Goal.ARM_DMA and card.model == "BlueField-2" and found < DMA_NEEDS:
        return finding.fail(
            str(found),
            needed="24.33.0100",
            why="DOCA DMA asks for it.",
            subject=about,
            remedy=_update(case, card),
            sources=[_SAMPLES, RESETS],
            disagree=f"{TWO_DOCUMENTS} {TWO_WAYS}",
        )
    if case.goal is Goal.GPUNETIO and card.model in _OLD:
        return finding.warn(
            f"{found}, {card.model}",
            needed="ConnectX-6 Dx or later",
            why="NVIDIA recommends no older NIC for GPUNetIO.",
            subject=about,
            remedy=["# use a ConnectX-6 Dx, ConnectX-7, BlueField-2 or later"],
            sources=[references.GPUNETIO("ConnectX NIC")],
        )
    return _beside_doca(case, card, found, about)


def _beside_doca(case: Case, card: Adapter, found: Version, about: str) -> Finding:
    """Against the firmware that the installed DOCA brings."""
    disagree = TWO_DOCUMENTS if case.goal is Goal.ARM_DMA else ""
    installed = case.machine.know(doca).version
    bundled = firmware.BUNDLED.get((*installed.parts, 0)[:2]) if installed else None
    support = [references.DOCA_SUPPORT("Bundled firmware"), references.DOCA_FIRMWARE()]
    if bundled is None or found.parts[0] not in firmware.WITH_DOCA or len(found.parts) < 2:
        return finding.ok(str(found), subject=about, sources=support, disagree=disagree)
    needed = f"{found.parts[0]}.{bundled} (DOCA {installed})"
    if found.parts[1] >= bundled - OFTEN_TESTED:
        return finding.ok(
            str(found), needed=needed, subject=about, sources=support, disagree=disagree
        )
    return finding.warn(
        str(found),
        needed=needed,
        why="It is more than two releases older than the firmware that comes with this DOCA, which "
        "was not tested with it.",
        subject=about,
        remedy=_update(case, card),
        sources=[*support, RESETS],
        disagree=f"{disagree} {TWO_WAYS}".strip(),
    )


def _update(case: Case, card: Adapter) -> list[str]:
    where = Where(arm=case.machine.know(side) == "dpu")
    line = f"sudo mlxfwmanager -d {card.address} --online -u"
    return [line, *cycle(card.address, where, running=card.bluefield)]
