"""One check of every GPU, in as few findings as tell it: GPUs that are alike share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from .. import finding, references
from ..facts import gpus, nvidia_proc, pci
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..finding import Finding
from ..machine import Case, Machine

__all__ = ["by_smi", "each", "none", "nothing", "unread"]

NO_GPU, NO_DRIVER = "no NVIDIA GPU", "no NVIDIA driver is loaded"


def none(machine: Machine, found: str) -> Finding:
    """Not applicable for want of a device; cannot tell, if not all PCI devices were read."""
    if why := unread(machine):
        return finding.unknown(
            "PCI devices not read",
            why=why,
            remedy=["lspci -tv"],
            sources=[references.SYSFS_PCI("")],
        )
    return finding.n_a(found)


def unread(machine: Machine) -> str:
    """Why there may be more PCI devices than are known, a sentence; "" if there are no more."""
    why = machine.know(pci.tree).why
    absent = machine.read.names(pci.DEVICES).absent  # a machine without PCI
    return f"{why.rstrip('.')}." if why and not absent else ""


def nothing(case: Case, *, driver: bool = True) -> Finding | None:
    """What to say where there is nothing to judge: no GPU, or no driver where one is needed.

    The checks gpu-present and driver-loaded say why.
    """
    if not case.machine.know(gpus.gpus):
        return none(case.machine, NO_GPU)
    loaded = case.machine.know(nvidia_proc.driver).loaded
    if driver and loaded is False and not case.machine.know(smi).gpus:
        return finding.n_a(NO_DRIVER)
    return None


def by_smi(machine: Machine, command: str) -> list[str]:
    """What shows it: a command of nvidia-smi, or the driver, with which that comes."""
    if machine.know(smi).trouble != "absent":
        return [command]
    return ["# The driver tells, once it is there: dgkit doctor driver-loaded"]


def each(case: Case, judge: Callable[[Gpu], Finding], *, driver: bool = True) -> Iterator[Finding]:
    """What `judge` says of each GPU, with the GPU as its subject; else what `nothing` says."""
    empty = nothing(case, driver=driver)
    if empty is not None:
        yield empty
        return
    found = gpus.usable(case.machine)
    alike: dict[bytes, tuple[Finding, list[Gpu]]] = {}
    for gpu in found:
        said = judge(gpu)
        alike.setdefault(msgspec.json.encode(said), (said, []))[1].append(gpu)
    for said, those in alike.values():
        yield msgspec.structs.replace(said, subject=_names(those, len(found)))


def _names(those: list[Gpu], of: int) -> str:
    if len(those) == 1:
        return those[0].label
    return f"all {of} GPUs" if len(those) == of else ", ".join(one.label for one in those)
