"""What the mode of a BlueField means for a goal, and how it is changed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .. import finding, references
from ..facts import bluefield
from ..facts.bluefield import Mode
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..finding import Finding
from ..goals import Goal
from ._power_cycle import RESETS, TWO_WAYS, Where, cycle

__all__ = ["GUIDE", "MODES", "WANTED", "Seen", "judged", "subject"]

MODES = references.MODES("DPU mode, NIC mode")
GUIDE = references.GPUNETIO("BlueField NIC")
ONE_MODE = (
    "The GPUNetIO guide wants NIC mode, in which the Arm cores take no part; moving bytes from the "
    "Arm cores (modes of operation) wants DPU mode. One card is in one of them at a time: use two "
    "cards, or change the mode and power-cycle."
)
NIC_SETTINGS = (
    "The GPUNetIO guide sets all five INTERNAL_CPU_* for BlueField-2 and -3; the modes of "
    "operation name INTERNAL_CPU_OFFLOAD_ENGINE alone for BlueField-3."
)


def subject(card: Adapter) -> str:
    """A card, for people."""
    return f"{card.model} ({card.address})"


class Seen(msgspec.Struct, frozen=True):
    """A card's mode now and after the next power cycle; `how`: by what it was seen.

    `where`: from where its settings may be changed.
    """

    card: Adapter
    settings: Config
    now: Mode
    after: Mode
    how: str = ""
    where: Where = Where()


WANTED = {Goal.ARM_DMA: Mode.DPU, Goal.GPUNETIO: Mode.NIC}
_BLOCKS = {
    Goal.ARM_DMA: "Outside DPU mode the Arm cores own nothing of the card and cannot move bytes.",
    Goal.GPUNETIO: "Outside NIC mode the host has no ConnectX of its own for GPUNetIO to drive.",
}
_NIC_SERVES = "In NIC mode it serves --goal rdma and --goal gpunetio."


def judged(goal: Goal, seen: Seen) -> Finding:
    """What a known mode means. RDMA from the host works in any."""
    wanted = WANTED.get(goal)
    sources_ = [MODES, GUIDE]
    if wanted is None:
        found = str(seen.now)
        return finding.ok(found, subject=subject(seen.card), why=seen.how, sources=sources_)
    right = seen.now is wanted
    make, found, why, remedy = _right(seen, wanted) if right else _wrong(goal, seen, wanted)
    disagree = [ONE_MODE]
    if wanted is Mode.NIC and seen.card.model == "BlueField-3":
        disagree.append(NIC_SETTINGS)
    if remedy:
        disagree.append(TWO_WAYS)
        sources_.append(RESETS)
    return make(
        found,
        needed=str(wanted),
        why=why,
        subject=subject(seen.card),
        remedy=remedy,
        sources=sources_,
        disagree=" ".join(disagree),
    )


_Said = tuple[Callable[..., Finding], str, str, list[str]]


def _wrong(goal: Goal, seen: Seen, wanted: Mode) -> _Said:
    if seen.after is wanted:
        why = f"{wanted} is set, and takes effect after a power cycle. {_BLOCKS[goal]}"
        return finding.fail, f"{seen.now}; {seen.after} at the next boot", why, _cycle(seen)
    other = _NIC_SERVES if seen.now is Mode.NIC else ""
    why = " ".join(text for text in (_BLOCKS[goal], seen.how, other) if text)
    return finding.fail, str(seen.now), why, [_change(seen, wanted), *_cycle(seen)]


def _right(seen: Seen, wanted: Mode) -> _Said:
    if seen.after is not wanted:
        found = f"{seen.now}; {seen.after} at the next boot"
        why = f"It works now. The next power cycle puts the card in {seen.after}; then it does not."
        return finding.warn, found, why, [_change(seen, wanted)]
    odd = [name for name in bluefield.MODE[1:4] if _odd(seen, wanted, name)]
    if odd:
        why = f"In {wanted} the {'host' if wanted is Mode.NIC else 'Arm side'} owns all of these."
        remedy = [_change(seen, wanted), *_cycle(seen)]
        return finding.warn, f"{seen.now}, {len(odd)} settings of the other", why, remedy
    return finding.ok, str(seen.now), seen.how, []


def _odd(seen: Seen, wanted: Mode, name: str) -> bool:
    """Whether the owner that a setting names (ECPF 0, EXT_HOST_PF 1) is the wrong one.

    BlueField-3 goes by INTERNAL_CPU_OFFLOAD_ENGINE alone.
    """
    value = seen.settings.now(name)
    expected = 1 if wanted is Mode.NIC else 0
    return seen.card.model == "BlueField-2" and value is not None and value != expected


def _cycle(seen: Seen) -> list[str]:
    # in NIC mode the Arm cores of a BlueField-3 do not run
    running = seen.card.bluefield and (seen.now, seen.card.model) != (Mode.NIC, "BlueField-3")
    return cycle(seen.card.address, seen.where, running=running)


def _change(seen: Seen, wanted: Mode) -> str:
    """The guide's line for NIC mode, with the link types as they are; and its reverse.

    It has the settings that the card showed alone: for one that it lacks, mlxconfig refuses the
    whole line. The guide's five, if it showed none.
    """
    owner, shown = 1 if wanted is Mode.NIC else 0, seen.settings.settings
    links = ["LINK_TYPE_P1", "LINK_TYPE_P2"] if owner else []
    words = [f"{name}={seen.settings.now(name) or 2}" for name in links if name in shown]
    known = [name for name in bluefield.MODE if name in shown] or bluefield.MODE
    words += [f"{name}={1 if name == bluefield.MODE[0] else owner}" for name in known]
    return seen.where.typed(
        lambda address: f"sudo mlxconfig -d {address} --yes set {' '.join(words)}",
        seen.card.address,
    )
