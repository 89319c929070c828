# SPDX-License-Identifier: Apache-2.0
"""Requirements: conditions for running a check, declared by `@check(requires=...)`.

A requirement is a function that takes a case. It returns None if it is met, else the finding of a
check that cannot run: "unknown" if a reading is missing, "not applicable" if there is nothing
to judge. A check that is late or raises becomes unknown in `runner._found`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from . import finding, references
from .facts import gpudirect, gpus, nvidia_proc, pci
from .facts.nvidia_smi import smi
from .finding import Finding
from .machine import Case, Machine
from .references import Source

NO_GPU = "no NVIDIA GPU"
_ABSENT = (
    "It is not among the PCI devices (lspci): there is none, it is switched off, or it is not "
    "passed through to this virtual machine."
)

Requirement = Callable[[Case], "Finding | None"]
Text = str | Callable[[Case], str]  # text of a finding, or a function that returns it


class _Explained(Protocol):
    """Value of a fact with a reason in case it is unknown."""

    @property
    def why(self) -> str: ...


def reason(fact: Callable[[Machine], _Explained]) -> Callable[[Case], str]:
    """Return a function for `readable` that returns why a fact is unknown."""
    return lambda case: case.machine.know(fact).why


def readable(
    why: Callable[[Case], str],
    found: Text,
    *,
    needed: Text = "",
    remedy: Iterable[str] = (),
    sources: Iterable[Source] = (),
) -> Requirement:
    """Require a reading or a fact, without which the verdict is "unknown".

    Args:
        why: Returns why the reading or fact is missing; "" if it is available.
        found: As in `Finding`, like the other arguments.
    """
    remedy, sources = tuple(remedy), tuple(sources)

    def missing(case: Case) -> Finding | None:
        if not (because := why(case)):
            return None
        return finding.unknown(
            _text(found, case), needed=_text(needed, case), why=finding.sentence(because),
            remedy=remedy, sources=sources,
        )  # fmt: skip

    return missing


def _text(text: Text, case: Case) -> str:
    return text if isinstance(text, str) else text(case)


def applies(
    condition: Callable[[Case], object],
    found: str,
    *,
    needed: str = "",
    why: str = "",
    sources: Iterable[Source] = (),
) -> Requirement:
    """Require a condition; if it is false, the check is not applicable.

    Args:
        condition: Returns a true value if the check applies.
        found: As in `Finding`, like the other arguments.
    """
    result = finding.n_a(found, needed=needed, why=why, sources=sources)
    return lambda case: None if condition(case) else result


def device(present: Callable[[Case], object], found: str) -> Requirement:
    """Require a device; see `missing_device`.

    Args:
        present: Returns a true value if the device is present.
        found: Text of the finding if the device is missing, such as "no NVIDIA NIC".
    """
    return lambda case: None if present(case) else missing_device(case.machine, found)


def missing_device(machine: Machine, found: str) -> Finding:
    """Return "not applicable" for a missing device; "unknown" if PCI devices were not read."""
    if why := pci_unread(machine):
        return finding.unknown(
            "PCI devices not read",
            why=why,
            remedy=["lspci -tv"],
            sources=[references.SYSFS_PCI("")],
        )
    return finding.n_a(found, why=_ABSENT)


def pci_unread(machine: Machine) -> str:
    """Return a sentence on why the list of PCI devices may be incomplete; "" if it is complete."""
    why = machine.know(pci.tree).why
    absent = machine.read.names(pci.DEVICES).absent  # the machine has no PCI
    return f"{why.rstrip('.')}." if why and not absent else ""


gpu_present = device(lambda case: case.machine.know(gpus.gpus), NO_GPU)  # gpu-present says more


def _has_driver(case: Case) -> bool:
    loaded = case.machine.know(nvidia_proc.driver).loaded
    return loaded is not False or bool(case.machine.know(smi).gpus)


driver_loaded = applies(_has_driver, "no NVIDIA driver is loaded")  # driver-loaded says more
gpudirect_possible = applies(
    lambda case: gpudirect.is_direct(case.machine), "not on this machine: see gpudirect-platform"
)
