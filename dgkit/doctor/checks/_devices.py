# SPDX-License-Identifier: Apache-2.0
"""Findings on several devices: each GPU, cards where one suffices, devices in virtual machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps

import msgspec

from .. import finding
from ..facts import gpus, virtual
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..finding import Finding, Verdict
from ..machine import Case, Machine


def smi_command(machine: Machine, command: str) -> list[str]:
    """Return an nvidia-smi command or, if nvidia-smi is not installed, how to get the driver."""
    if machine.know(smi).trouble != "absent":
        return [command]
    return ["# Needs the NVIDIA driver: dgkit doctor driver-loaded"]


def per_gpu(judge: Callable[[Case, Gpu], Finding]) -> Callable[[Case], Iterator[Finding]]:
    """Have a check judge each GPU; GPUs with equal findings become one subject."""

    @wraps(judge)
    def judge_each(case: Case) -> Iterator[Finding]:
        found = gpus.usable(case.machine)
        groups: dict[bytes, tuple[Finding, list[Gpu]]] = {}
        for gpu in found:
            judged = judge(case, gpu)
            groups.setdefault(msgspec.json.encode(judged), (judged, []))[1].append(gpu)
        for judged, alike in groups.values():
            yield finding.about(_labels(alike, len(found)), judged)

    return judge_each


def _labels(alike: list[Gpu], total: int) -> str:
    if len(alike) == 1:
        return alike[0].label
    return f"all {total} GPUs" if len(alike) == total else ", ".join(gpu.label for gpu in alike)


_SUFFICIENT = (Verdict.OK, Verdict.WARN)


def any_of(findings: Sequence[Finding], instead: str = "") -> Iterator[Finding]:
    """Yield the findings; where one card suffices, mark those of worse cards as not applicable.

    In this way no remedy reconfigures a card that may be in use for something else.

    Args:
        findings: One finding for each card.
        instead: Label of a card that suffices but is not in `findings`, "" if there is none.
    """
    verdicts = {card.verdict for card in findings}
    best = Verdict.OK if instead else next((v for v in _SUFFICIENT if v in verdicts), None)
    sufficient = instead or next((card.subject for card in findings if card.verdict is best), "")
    for card in findings:
        if best is None or card.verdict in (Verdict.NOT_APPLICABLE, Verdict.OK, best):
            yield card
        else:
            why = f"{sufficient} serves the goal; this card can stay as it is."
            yield finding.n_a(card.found, needed=card.needed, why=why, subject=card.subject)


def only_good(machine: Machine, findings: Iterable[Finding], what: str) -> Iterator[Finding]:
    """Yield the findings; in a virtual machine, replace those that are not OK by one "n.a.".

    Args:
        machine: The machine that the findings are about.
        findings: Findings on the tree, the NUMA nodes or the links of PCI devices.
        what: Subject that is not judged in a virtual machine.
    """
    if not machine.know(virtual.virtual).is_vm:
        yield from findings
        return
    found = list(findings)
    good = (Verdict.OK, Verdict.NOT_APPLICABLE)
    yield from (result for result in found if result.verdict in good)
    if any(result.verdict not in good for result in found):
        yield finding.n_a(f"{what} of a virtual machine are not judged")
