# SPDX-License-Identifier: Apache-2.0
"""Kernel log: errors of the drivers of GPUs, NICs and DPUs, and of the ports above them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import finding, references
from ..facts import kernel_log, pairs, pci, rdma
from ..facts.kernel_log import Line, quoted
from ..facts.nvidia_smi import smi
from ..facts.pci import PciDevice
from ..finding import Finding, Verdict
from ..goals import ANY_GPU, WITH_CARD
from ..machine import Case, Machine
from ..prerequisites import applies, readable, reason
from ..registry import check
from ..symptom_table import KERNEL, SYMPTOMS, Symptom

_LOG = references.KERNEL_LOG()
_NEEDED = "no error since the start"
# Subsystems whose lines are about each kind of device even if they name none.
_OF_GPU = frozenset({"gpu", "nvlink", "peermem"})
_OF_NIC = frozenset({"nic", "rdma", "bluefield"})
_ABOVE = frozenset({"pcie", "iommu"})
_KNOWN = tuple(symptom for symptom in SYMPTOMS if symptom.program == KERNEL)
_READ = (readable(reason(kernel_log.log), "not read", remedy=["sudo dmesg --level=err,warn"]),)


def _gpus(case: Case) -> tuple[PciDevice, ...]:
    return case.machine.know(pci.tree).gpus


def _cards(case: Case) -> tuple[PciDevice, ...]:
    """Return all functions of the NICs and DPUs of the goal, without virtual functions."""
    slots = {peer.slot for peer in pairs.peers(case.machine, case.goal)}
    nics = case.machine.know(pci.tree).nics
    return tuple(nic for nic in nics if nic.slot in slots and not nic.physfn)


@check(
    "gpu-log",
    "Kernel log, GPUs",
    asks="Do the GPU's driver or the PCIe ports above it report an error since the last start?",
    goals=ANY_GPU,
    sides=("host",),
    needed=_NEEDED,
    sources=[_LOG],
    requires=[
        applies(lambda case: _gpus(case) or case.machine.know(pci.tree).why, "no NVIDIA GPU"),
        *_READ,
    ],
)
def _gpu_log(case: Case) -> Iterator[Finding]:
    listed = {gpu.address for gpu in case.machine.know(smi).gpus}
    yield from _judge(case.machine, _gpus(case), _OF_GPU, listed)


@check(
    "nic-log",
    "Kernel log, NICs",
    asks="Do the driver of a NIC or DPU or the ports above it report an error since the start?",
    goals=WITH_CARD,
    needed=_NEEDED,
    sources=[_LOG],
    requires=[
        applies(lambda case: _cards(case) or case.machine.know(pci.tree).why, "no NIC or DPU"),
        *_READ,
    ],
)
def _nic_log(case: Case) -> Iterator[Finding]:
    # With its RDMA device the driver runs, whether or not a cable is plugged in.
    running = {one.address for one in case.machine.know(rdma.devices).devices}
    yield from _judge(case.machine, _cards(case), _OF_NIC, running)


def _judge(
    machine: Machine, devices: Sequence[PciDevice], own: frozenset[str], working: set[str]
) -> Iterator[Finding]:
    """Yield a finding for each device with errors, and one for errors that name no device.

    Args:
        machine: The machine.
        devices: The devices.
        own: Subsystems of their drivers.
        working: Addresses of those that work now, whatever the log says.
    """
    errors = machine.know(kernel_log.log).errors
    told: set[Line] = set()
    found = []
    for device in devices:
        above = set(device.path[:-1])
        lines = [
            line
            for line in errors
            if line.about(device.address) or (line.subsystem in _ABOVE and line.address in above)
        ]
        told.update(lines)
        if lines:
            works = device.address in working
            found.append((pairs.label(machine, device), lines, works))
    all_work = bool(devices) and all(one.address in working for one in devices)
    general = [line for line in errors if _is_general(line, own, devices) and line not in told]
    if general := [one for one in general if not (all_work and one.subsystem == "modules")]:
        found.append(("", general, all_work))
    some = any(device.address in working for device in devices)
    judged = [_finding(*one, some) for one in found]
    seen = [one for one in judged if one is not None]
    yield from seen or [finding.ok(_NEEDED)]


def _is_general(line: Line, own: frozenset[str], devices: Sequence[PciDevice]) -> bool:
    """Return whether a line is about the driver rather than another device."""
    if line.subsystem == "modules":
        word = "nvidia" if "gpu" in own else "mlx5"
        return word in line.text.lower() or line.text.startswith("Loading of ")
    return line.subsystem in own and (not line.address or not devices)


def gpu_remedy(machine: Machine) -> tuple[str, ...]:
    """Return the remedy of the first known error that keeps a GPU's driver from starting it."""
    devices = machine.know(pci.tree).gpus
    errors = machine.know(kernel_log.log).errors
    lines = [one for one in errors if any(one.about(gpu.address) for gpu in devices)]
    lines += [one for one in errors if _is_general(one, _OF_GPU, devices)]
    return next((do for line in lines if (do := _remedy(_meaning(line)))), ())


def _remedy(symptom: Symptom | None) -> tuple[str, ...]:
    causes = symptom.causes if symptom and symptom.severity is not Verdict.OK else ()
    return next((cause.remedy for cause in causes if cause.remedy), ())


def _finding(subject: str, lines: list[Line], works: bool, some: bool) -> Finding | None:
    """Return the finding on error lines of one device; None if they say nothing about it.

    An error stops the device if it is known to, unless the device or another one works now.
    """
    meanings = [(line, _meaning(line)) for line in lines]
    left = [line for line, symptom in meanings if not symptom or symptom.severity != Verdict.OK]
    if not left:
        return None
    known = [(line, symptom) for line, symptom in meanings if symptom and line in left]
    stops = [one for one in known if one[1].severity is Verdict.FAIL]
    first = min(stops or known, key=lambda one: _KNOWN.index(one[1]), default=None)
    line, symptom = first or (left[0], None)
    why = quoted([line.text, *(other.text for other in left if other is not line)])
    make = finding.fail if stops and not works and not some else finding.warn
    now = " It works now." if works else ""
    if symptom is None:
        why = f"{why} Its meaning is not known here.{now}"
        return make(f"error of {line.driver}", why=why, subject=subject)
    sources = [references.Source("where this was explained", "", symptom.source)]
    why = f"{why} {symptom.means}{now}"
    return make(
        f"error of {line.driver}", why=why, subject=subject,
        remedy=() if works else _remedy(symptom), sources=[_LOG, *sources],
    )  # fmt: skip


def _meaning(line: Line) -> Symptom | None:
    return next((one for one in _KNOWN if one.pattern.search(line.text)), None)
