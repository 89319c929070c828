"""With which options the kernel was built."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .uname import uname

__all__ = ["KEPT", "Kconfig", "kconfig", "kept", "parse", "paths"]

# Those that checks look at; a recording has no others.
KEPT = (
    *("CONFIG_PCI_P2PDMA", "CONFIG_HMM_MIRROR", "CONFIG_DEVICE_PRIVATE", "CONFIG_ZONE_DEVICE"),
    *("CONFIG_DMA_SHARED_BUFFER", "CONFIG_IOMMU_DEFAULT_PASSTHROUGH"),
    *("CONFIG_IOMMU_DEFAULT_DMA_LAZY", "CONFIG_IOMMU_DEFAULT_DMA_STRICT", "CONFIG_INTEL_IOMMU"),
    *("CONFIG_INTEL_IOMMU_DEFAULT_ON", "CONFIG_AMD_IOMMU", "CONFIG_ARM_SMMU_V3"),
)
_SET = re.compile(r"^(CONFIG_\w+)=(.*?)\s*$", re.ASCII)
_NOT_SET = re.compile(r"^# (CONFIG_\w+) is not set\s*$", re.ASCII)


class Kconfig(msgspec.Struct, frozen=True):
    """`options`: by name, "y", "m", "n" or a value. `path`: the file. `why`: why there is none.

    `denied`: whether root could read one.
    """

    options: dict[str, str]
    path: str = ""
    why: str = ""
    denied: bool = False

    def __getitem__(self, name: str) -> str:
        """What an option is set to; "n" for one that the file does not have, as make does."""
        return self.options.get(name, "n")


def parse(text: str) -> dict[str, str]:
    """Of a text as make writes .config; lines that are no option are passed over."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            options[match[1]] = match[2]
        elif match := _NOT_SET.match(line):
            options[match[1]] = "n"
    return options


def kept(text: str) -> str:
    """A config with no options but those that checks look at."""
    options = parse(text)
    return "".join(f"{name}={options.get(name, 'n')}\n" for name in KEPT) if options else ""


def paths(release: str) -> tuple[str, ...]:
    """Where distributions, and the kernel itself, have the config of a release."""
    return (
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",
        f"/lib/modules/{release}/build/.config",
        "/proc/config.gz",
    )


def kconfig(machine: Machine) -> Kconfig:
    """Reads the first that there is."""
    release = machine.know(uname).release
    places = paths(release) if release and "/" not in release else paths("")[-1:]
    readings = machine.read.together([f"text {path}" for path in places])
    for path, reading in zip(places, readings, strict=True):
        options = parse(reading.text) if reading.ok else {}
        if options:
            return Kconfig(options, path)
    odd = [reading for reading in readings if not reading.ok and not reading.absent]
    why = odd[0].why if odd else f"there is none in {' or '.join(places[:1])} or elsewhere"
    return Kconfig({}, why=why, denied=any(reading.fault == "denied" for reading in odd))
