# SPDX-License-Identifier: Apache-2.0
"""The kernel's log since the last start of the machine: lines by driver, subsystem and device."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from ...units import one_line
from ..machine import Machine

SEARCH = "sudo dmesg | grep "  # a command of a remedy, which the doctor then runs itself
_MAX_QUOTE = 160  # characters
_MAX_LINE = 500
_START = "Linux version "
# `[   1.000000] `, `[Sun Nov 29 ...] `, `kern  :err   : [ 1.0] `, `Nov 29 10:00:00 host kernel: `
_STAMP = re.compile(r"^.{0,100}?(?:\bkernel: +(?:\[[^\]]{1,40}\] +)?|\[[ \w:.+-]{1,40}\] +)")
_ERRORS = (
    *("error", "fail", "cannot", "can't", "unable", "not supported", "timeout", "timed out"),
    *("time-out", "reject", "refus", "fatal", "fallen off", "no space", "unknown symbol", "lost"),
    *("disagrees", "xid", "unsuitable", "not found", "invalid", "insufficient", "fault", "hung"),
    *("is restricted", "requires use of", "mismatch", "too old", "compromised", "version magic"),
)
_NO_ERROR = re.compile("default|tlb invalidation")  # have "fault" and "invalid" within
# What the kernel has corrected, what is only said, and what no data path depends on.
_RECOVERED = re.compile(
    r" correct(?:ed|able) error|severity=correct|recovery succe|\) succeeded|\b(?:no|0) errors?\b"
    r"|tainting|\[io |bridge window|vgaarb|\bvf bar|firmware bug|error (?:hand|detect)\w+ enabled"
)
# How further lines of NVIDIA's messages begin, each of which the kernel prints with its time.
_CONTINUED = re.compile(
    r"NVRM: +(?:installed in|in (?:this|the) |NVIDIA [\d.]+ driver|BAR\d is|nvidia\.ko |Please see)"
)
_OTHER_WINDOW = re.compile(r"\bBAR (?:[6-9]|1\d)\b")  # a ROM, or a window of a bridge
_NAMED_DEVICE = re.compile(
    r"(?:PCI:|\[)?\b((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f])(?:\.([0-7])\b|(?=\)|: GPU|,))",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"BAR (\d)[^\n]{0,80}: assigned")
_BAR = re.compile(r"\bBAR (\d)\b")
# Drivers by the form of their lines; the first that matches gives driver and subsystem.
_DRIVERS = tuple(
    (re.compile(rf"^(?:{form})", re.IGNORECASE), driver, subsystem)
    for form, driver, subsystem in (
        (r"nvidia-modeset|nvidia-drm|\[drm:nv_|nvidia_drm", "nvidia-modeset", "display"),
        (r"(?:nvidia[-_]peermem|nv_peer_mem)\b", "nvidia-peermem", "peermem"),
        (r"nvidia-nvswitch|nvidia-nvlink|SXid", "nvidia-nvswitch", "nvlink"),
        (r"NVRM|nvidia(?:[-_]uvm)?(?=[: ])|NVIDIA:", "nvidia", "gpu"),
        (r"gdrdrv", "gdrdrv", "gdrcopy"),
        (r"(?:infiniband|ib_core|ib_uverbs|rdma_cm|nvme_rdma)\b", "ib_core", "rdma"),
        (r"mlx[45]_ib", "mlx5_ib", "rdma"),
        (r"mlx[45]_\w+|mlx5e?\b|mlxfw", "mlx5_core", "nic"),
        (r"(?:efa|irdma|bnxt_re|bnxt_en|erdma|hns_roce|ionic\w*|mana\w*)\b", "rdma nic", "nic"),
        (r"rshim|mlxbf\w*|tmfifo", "rshim", "bluefield"),
        (r"vfio\w*(?:-pci)?", "vfio", "iommu"),
        (r"DMAR|AMD-Vi|(?:arm-)?smmu\w*|iommu", "iommu", "iommu"),
        (r"pcieport|AER|pci(?:_bus)?(?= [0-9a-f]{4}:)|EDR|DPC|pciehp", "pcieport", "pcie"),
        (r"amdgpu|amdkfd|\[drm:amdgpu|kfd", "amdgpu", "amd"),
        (
            r"Lockdown|Loading of |\S{1,64}: (?:module ver|version magic|disagrees ab|Unknown sy)",
            *("kernel modules", "modules"),
        ),
    )
)  # fmt: skip


class Line(msgspec.Struct, frozen=True):
    """A line of a known driver.

    Attributes:
        text: The line without its time.
        driver: Name of the driver.
        subsystem: gpu, nvlink, peermem, nic, rdma, pcie, iommu, bluefield, amd, modules, display.
        address: PCI address of the device that the line names; without its function if the line
            has none; "" if it names no device.
        error: Whether it reports an error that the kernel has not corrected.
    """

    text: str
    driver: str
    subsystem: str
    address: str
    error: bool

    def about(self, address: str) -> bool:
        """Return whether the line is about the device at this PCI address."""
        if not self.address or "." in self.address:
            return self.address == address
        return self.address == address.rpartition(".")[0]


class Log(msgspec.Struct, frozen=True):
    """Lines of known drivers since the last start; why the log was not read, "" if it was."""

    lines: tuple[Line, ...] = ()
    why: str = ""

    @property
    def errors(self) -> tuple[Line, ...]:
        """The lines that report an error."""
        return tuple(line for line in self.lines if line.error)


def newest_start(text: str) -> list[str]:
    """Return the lines since the last start, without their times; a message is one line."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _START in line]
    joined: list[str] = []
    for line in lines[starts[-1] if starts else 0 :]:
        further = line[:1].isspace()  # as programs indent the further lines of a message
        line = line[:_MAX_LINE]
        # A recorded line has no time: a bracket in it, such as [NV_ERR_TIMEOUT], is its own.
        if not further and not any(row[0].match(line) for row in _DRIVERS):
            line = _STAMP.sub("", line, count=1)
        if joined and (further or _CONTINUED.match(line)):
            joined[-1] += f" {line.strip().removeprefix('NVRM:').strip()}"
        else:
            joined.append(line.strip())
    return joined


def log(machine: Machine) -> Log:
    """Return the lines of known drivers in the kernel's log."""
    reading = machine.read.run("dmesg")
    if reading.ok and not reading.code:
        return Log(tuple(parse(reading.text)))
    if reading.code:
        return Log(why="The kernel's log is for root only here (kernel.dmesg_restrict).")
    return Log(why=f"The kernel's log was not read: {reading.why or 'no dmesg'}.")


def parse(text: str) -> Iterator[Line]:
    """Yield the lines of known drivers."""
    lines = newest_start(text)
    recovered = {at for line in lines if "recovery succe" in line for at in _pci_addresses(line)}
    assigned = {(at, m[1]) for line in lines if (m := _ASSIGNED.search(line))
                for at in _pci_addresses(line)}  # fmt: skip
    for line in lines:
        known = next((row for row in _DRIVERS if row[0].match(line)), None)
        if known is None:
            continue
        address = next(_pci_addresses(line), "")
        bar = _BAR.search(line)
        lower = _NO_ERROR.sub("", line.lower())
        well = (
            _RECOVERED.search(lower) is not None
            or _OTHER_WINDOW.search(line) is not None
            or (known[2] == "pcie" and address in recovered)
            or (bar is not None and (address, bar[1]) in assigned)
        )
        error = not well and any(word in lower for word in _ERRORS)
        yield Line(line, known[1], known[2], address, error)


def _pci_addresses(line: str) -> Iterator[str]:
    for found in _NAMED_DEVICE.finditer(line):
        *domain, bus, device = found[1].lower().split(":")
        head = f"{int(domain[0], 16) if domain else 0:04x}:{bus}:{device}"
        yield f"{head}.{found[2]}" if found[2] else head


def errors(machine: Machine, command: str) -> list[str]:
    """Return the error lines since the last start that `sudo dmesg | grep ...` would print."""
    words = [word.lower() for word in shlex.split(command.removeprefix(SEARCH)) if word[0] != "-"]
    return [
        line.text
        for line in machine.know(log).errors
        if any(word in line.text.lower() for word in words)
    ]


def quoted(lines: list[str]) -> str:
    """Return a sentence with the first error line, which the others often follow from."""
    more = f" ({len(lines) - 1} more)" if len(lines) > 1 else ""
    line = one_line(lines[0]).rstrip(".")
    line = line if len(line) <= _MAX_QUOTE else f"{line[: _MAX_QUOTE - 3]}..."
    return f'The kernel\'s log: "{line}"{more}.'
