# SPDX-License-Identifier: Apache-2.0
"""The BlueFields that the host sees, as the doctor reads them."""

from __future__ import annotations

from dataclasses import dataclass

from ..doctor.diagnosis import Diagnosis
from ..doctor.facts import bluefield
from ..doctor.finding import Verdict
from ..doctor.goals import Goal
from ..doctor.machine import Machine
from ..doctor.runner import diagnose, live_machine
from ..errors import BluefieldError

ARM = "ubuntu@192.168.100.2"  # NVIDIA's image, and its address on the network over rshim
_CHECKS = ("bluefield-present", "bluefield-mode", "bluefield-tmfifo")


@dataclass(frozen=True, slots=True)
class HostView:
    """BlueFields of the host.

    Attributes:
        cards: Each as model and PCI address.
        lines: One for each subject that was judged: card, mode, network.
        problems: What is in the way, each with the check that has the commands.
    """

    cards: tuple[str, ...]
    lines: tuple[str, ...]
    problems: tuple[str, ...]

    def destination(self, arm: str | None) -> str:
        """Return the destination for SSH: `arm` if given, else the Arm side of the only card.

        Raises:
            BluefieldError: There is no card, or there are two, or it cannot be reached as it is.
        """
        if arm is not None:
            return arm
        if not self.cards:
            text = "there is no BlueField in this machine (`lspci -d 15b3:`)"
            raise BluefieldError(f"{text}: --arm USER@ADDRESS names the Arm side of one elsewhere")
        if len(self.cards) > 1:
            text = f"there are {len(self.cards)} BlueFields: {'; '.join(self.cards)}"
            raise BluefieldError(
                f"{text}. Each Arm side has the same address over its own tmfifo_net: give one "
                "another address, and name the card's by --arm USER@ADDRESS"
            )
        if self.problems:
            raise BluefieldError(
                f"{' '.join(self.problems)} Or name the Arm side's address in another network by "
                "--arm USER@ADDRESS"
            )
        return ARM


def this_host() -> HostView:
    """Read this host's BlueFields."""
    with live_machine(fast=True) as machine:
        return view(machine)


def view(machine: Machine) -> HostView:
    """Return the BlueFields of a machine, read now or recorded."""
    cards = machine.know(bluefield.cards)
    if not cards:
        return HostView((), (), ())
    found = diagnose([machine], goal=Goal.ARM_DMA, only=_CHECKS)
    names = tuple(f"{card.model} at {card.address}" for card in cards)
    return HostView(names, tuple(_lines(found)), tuple(_problems(found)))


def _lines(diagnosis: Diagnosis) -> list[str]:
    return [f"{found.title}: {found.found}" for found in diagnosis.findings]


def _problems(diagnosis: Diagnosis) -> list[str]:
    bad = [found for found in diagnosis.findings if found.verdict >= Verdict.WARN]
    return [
        f"{found.title}: {found.found}. {found.why} `dgkit doctor {found.check}` has the commands."
        for found in bad
    ]
