# SPDX-License-Identifier: Apache-2.0
"""Kernel command line: IOMMU and PCI parameters."""

from __future__ import annotations

import re

import msgspec

from ..collect.reader import Reading
from ..machine import Machine
from .distribution import family, restart

PATH = "/proc/cmdline"
# The parameters that checks use (Linux, admin-guide/kernel-parameters). A recording contains no
# others, as these may hold disk names, keys or addresses.
RECORDED = frozenset(
    {
        *("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict"),
        *("arm-smmu.disable_bypass", "arm-smmu-v3.disable_bypass", "pci", "pcie_acs_override"),
    }
)
_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')  # quotes protect spaces, as in dyndbg="file x +p"


_BOOLEANS = {"1": True, "y": True, "on": True, "0": False, "n": False, "off": False}  # kstrtobool


class Cmdline(msgspec.Struct, frozen=True):
    """Kernel command line.

    Attributes:
        words: Name and value of each parameter, in order; parameters for init are omitted.
        reading: The failed reading if the file could not be read.
    """

    words: tuple[tuple[str, str], ...]
    reading: Reading = Reading()

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of all occurrences of a parameter, split at commas."""
        given = (value for word, value in self.words if word == name)
        return tuple(part for value in given for part in value.split(",") if part)

    @property
    def iommu(self) -> str:
        """Requested IOMMU mode: `off`, `passthrough`, `on` (translating), or "" for the default.

        Linux, kernel-parameters: iommu=off and iommu=pt (x86), intel_iommu=on or off,
        amd_iommu=off, iommu.passthrough=1 or 0 (all).
        """
        common, vendors = self.values("iommu"), self.values("intel_iommu")
        vendors += self.values("amd_iommu")
        if "off" in common or "off" in vendors:
            return "off"
        # The last parameter takes effect: all of them set the same default in the kernel.
        requested = ""
        for word, value in self.words:
            if word == "iommu.passthrough" and value.lower() in _BOOLEANS:
                requested = "passthrough" if _BOOLEANS[value.lower()] else "on"
            elif word == "iommu" and {"pt", "nopt"} & {*value.split(",")}:
                requested = "passthrough" if "pt" in value.split(",") else "on"
        return requested or ("on" if "on" in vendors else "")

    @property
    def about_iommu(self) -> str:
        """The IOMMU parameters as they were given."""
        given = [
            f"{word}={value}" for word, value in self.words if "iommu" in word.partition(".")[0]
        ]
        return " ".join(given)


def parse(text: str) -> Cmdline:
    """Parse the text of /proc/cmdline; any text is accepted."""
    words = []
    for word in _WORD.findall(text):
        if word == "--":  # parameters for init follow
            break
        name, _, value = word.replace('"', "").partition("=")
        words.append((name, value))
    return Cmdline(tuple(words))


def filter_parameters(text: str) -> str:
    """Return a command line reduced to the parameters in RECORDED."""
    known = [(name, value) for name, value in parse(text).words if name in RECORDED]
    return " ".join(f"{name}={value}" if value else name for name, value in known) + "\n"


def cmdline(machine: Machine) -> Cmdline:
    """Read the kernel command line."""
    reading = machine.read.text(PATH)
    return parse(reading.text) if reading.ok else Cmdline((), reading)


def add_parameter(machine: Machine, word: str, name: str) -> str:
    """Return the shell command that adds a parameter permanently and reboots.

    On apt systems it writes /etc/default/grub.d/99-NAME.cfg, a file that can be removed later. It
    is read after the files of cloud images and DGX OS, which set the whole line. A value with `;`
    needs double quotes, as `;` ends a command in GRUB (rdma-core, kernel-boot/rdma_topo,
    write-grub-acs).
    """
    if machine.know(family) == "dnf":
        return restart(f"sudo grubby --update-kernel=ALL --args='{word}'")
    quoted = word.replace('"', r"\"")
    line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {quoted}"'
    write = f"echo '{line}' | sudo tee /etc/default/grub.d/99-{name}.cfg"
    return restart(f"{write} && sudo update-grub")
