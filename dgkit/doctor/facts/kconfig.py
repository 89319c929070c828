# SPDX-License-Identifier: Apache-2.0
"""Build options of the kernel."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .uname import uname

# The options that checks use; a recording contains only these.
RECORDED = (
    *("CONFIG_PCI_P2PDMA", "CONFIG_HMM_MIRROR", "CONFIG_DEVICE_PRIVATE", "CONFIG_ZONE_DEVICE"),
    *("CONFIG_DMA_SHARED_BUFFER", "CONFIG_IOMMU_DEFAULT_PASSTHROUGH"),
    *("CONFIG_IOMMU_DEFAULT_DMA_LAZY", "CONFIG_IOMMU_DEFAULT_DMA_STRICT", "CONFIG_INTEL_IOMMU"),
    *("CONFIG_INTEL_IOMMU_DEFAULT_ON", "CONFIG_AMD_IOMMU", "CONFIG_ARM_SMMU_V3"),
    "CONFIG_ARM_SMMU_V3_SVA",
)
_SET = re.compile(r"^(CONFIG_\w+)=(.*?)\s*$", re.ASCII)
_NOT_SET = re.compile(r"^# (CONFIG_\w+) is not set\s*$", re.ASCII)


class Kconfig(msgspec.Struct, frozen=True):
    """Kernel configuration.

    Attributes:
        options: "y", "m", "n" or a value, by name.
        path: File that was read.
        why: Reason why no file could be read.
        denied: Whether reading a file was denied; root can then read it.
    """

    options: dict[str, str]
    path: str = ""
    why: str = ""
    denied: bool = False

    def __getitem__(self, name: str) -> str:
        """Return the value of an option; "n" if it is not in the file, as in kbuild."""
        return self.options.get(name, "n")


def parse(text: str) -> dict[str, str]:
    """Parse a .config file; lines without an option are ignored."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            options[match[1]] = match[2]
        elif match := _NOT_SET.match(line):
            options[match[1]] = "n"
    return options


def filter_options(text: str) -> str:
    """Return a config reduced to the options in RECORDED."""
    options = parse(text)
    return "".join(f"{name}={options.get(name, 'n')}\n" for name in RECORDED) if options else ""


def paths(release: str) -> tuple[str, ...]:
    """Return the paths where distributions and the kernel itself provide the config."""
    return (
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",
        f"/lib/modules/{release}/build/.config",
        "/proc/config.gz",
    )


def kconfig(machine: Machine) -> Kconfig:
    """Read the first config that exists."""
    release = machine.know(uname).release
    candidates = paths(release) if release and "/" not in release else paths("")[-1:]
    readings = machine.read.together([f"text {path}" for path in candidates])
    for path, reading in zip(candidates, readings, strict=True):
        options = parse(reading.text) if reading.ok else {}
        if options:
            return Kconfig(options, path)
    errors = [reading for reading in readings if not reading.ok and not reading.absent]
    why = errors[0].why if errors else f"there is no {candidates[0]} or other kernel config"
    return Kconfig({}, why=why, denied=any(reading.fault == "denied" for reading in errors))
