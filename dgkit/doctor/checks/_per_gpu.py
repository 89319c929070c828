"""A check of every GPU, and the findings where there is none; GPUs that are alike share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from .. import finding, references
from ..facts import gpus, nvidia_proc, pci
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..finding import Finding
from ..machine import Case, Machine

__all__ = ["NO_GPU", "missing_device", "not_applicable", "pci_unread", "per_gpu", "smi_command"]

NO_GPU, _NO_DRIVER = "no NVIDIA GPU", "no NVIDIA driver is loaded"


def missing_device(machine: Machine, found: str) -> Finding:
    """Return "not applicable" for a missing device; "cannot tell" if PCI devices were not read."""
    if why := pci_unread(machine):
        return finding.unknown(
            "PCI devices not read",
            why=why,
            remedy=["lspci -tv"],
            sources=[references.SYSFS_PCI("")],
        )
    return finding.n_a(found)


def pci_unread(machine: Machine) -> str:
    """Return why there may be more PCI devices than are known, as a sentence; "" if not."""
    why = machine.know(pci.tree).why
    absent = machine.read.names(pci.DEVICES).absent  # a machine without PCI
    return f"{why.rstrip('.')}." if why and not absent else ""


def not_applicable(case: Case, *, driver: bool = True) -> Finding | None:
    """Return the finding if there is no GPU, or no driver and `driver` is needed; None otherwise.

    The checks gpu-present and driver-loaded give the reasons.
    """
    if not case.machine.know(gpus.gpus):
        return missing_device(case.machine, NO_GPU)
    loaded = case.machine.know(nvidia_proc.driver).loaded
    if driver and loaded is False and not case.machine.know(smi).gpus:
        return finding.n_a(_NO_DRIVER)
    return None


def smi_command(machine: Machine, command: str) -> list[str]:
    """Return a command of nvidia-smi; if there is none, how to get the driver it comes with."""
    if machine.know(smi).trouble != "absent":
        return [command]
    return ["# Needs the NVIDIA driver: dgkit doctor driver-loaded"]


def per_gpu(
    case: Case, judge: Callable[[Gpu], Finding], *, driver: bool = True
) -> Iterator[Finding]:
    """Yield the finding of `judge` for each GPU, with the GPUs that share it as the subject.

    Yields that of `not_applicable` if there is no GPU.
    """
    missing = not_applicable(case, driver=driver)
    if missing is not None:
        yield missing
        return
    found = gpus.usable(case.machine)
    groups: dict[bytes, tuple[Finding, list[Gpu]]] = {}
    for gpu in found:
        judged = judge(gpu)
        groups.setdefault(msgspec.json.encode(judged), (judged, []))[1].append(gpu)
    for judged, alike in groups.values():
        yield msgspec.structs.replace(judged, subject=_labels(alike, len(found)))


def _labels(alike: list[Gpu], total: int) -> str:
    if len(alike) == 1:
        return alike[0].label
    return f"all {total} GPUs" if len(alike) == total else ", ".join(gpu.label for gpu in alike)
