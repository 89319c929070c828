"""The kernel's command line: what it says of the IOMMU."""

from __future__ import annotations

import re

import msgspec

from ..collect.reading import Reading
from ..machine import Machine
from .system import family, restart

__all__ = ["PATH", "Cmdline", "added", "cmdline", "kept", "parse"]

PATH = "/proc/cmdline"
# The parameters that checks look at (Linux, admin-guide/kernel-parameters). A recording has these
# alone: the others may name disks, keys or addresses.
KEPT = frozenset(
    {
        *("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict"),
        *("arm-smmu.disable_bypass", "arm-smmu-v3.disable_bypass", "pci", "pcie_acs_override"),
    }
)
_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')  # a quote holds spaces, as in dyndbg="file x +p"


class Cmdline(msgspec.Struct, frozen=True):
    """The parameters in their order, those of `init` left out. `reading`: why there are none."""

    words: tuple[tuple[str, str], ...]
    reading: Reading = Reading()

    def values(self, name: str) -> tuple[str, ...]:
        """What was given for a parameter, split at commas, each time that it was given."""
        given = (value for word, value in self.words if word == name)
        return tuple(part for value in given for part in value.split(",") if part)

    @property
    def iommu(self) -> str:
        """What was asked for: `off`, `passthrough`, `on` (translating), or "" for the default.

        Linux, kernel-parameters: iommu=off and iommu=pt (x86), intel_iommu=on or off,
        amd_iommu=off, iommu.passthrough=1 or 0 (all).
        """
        common, vendors = self.values("iommu"), self.values("intel_iommu")
        vendors += self.values("amd_iommu")
        if "off" in common or "off" in vendors:
            return "off"
        # The last of them holds: each sets the same default in the kernel.
        asked = ""
        for word, value in self.words:
            if word == "iommu.passthrough" and value in ("0", "1"):
                asked = "passthrough" if value == "1" else "on"
            elif word == "iommu" and {"pt", "nopt"} & {*value.split(",")}:
                asked = "passthrough" if "pt" in value.split(",") else "on"
        return asked or ("on" if "on" in vendors else "")

    @property
    def about_iommu(self) -> str:
        """The words themselves, for people."""
        said = [
            f"{word}={value}" for word, value in self.words if "iommu" in word.partition(".")[0]
        ]
        return " ".join(said)


def parse(text: str) -> Cmdline:
    """Of a text as /proc/cmdline has it; whatever it is, it gives a Cmdline."""
    words = []
    for word in _WORD.findall(text):
        if word == "--":  # what follows is for init
            break
        name, _, value = word.replace('"', "").partition("=")
        words.append((name, value))
    return Cmdline(tuple(words))


def kept(text: str) -> str:
    """A command line with no parameters but those that checks look at."""
    known = [(name, value) for name, value in parse(text).words if name in KEPT]
    return " ".join(f"{name}={value}" if value else name for name, value in known) + "\n"


def cmdline(machine: Machine) -> Cmdline:
    """Reads it."""
    reading = machine.read.text(PATH)
    return parse(reading.text) if reading.ok else Cmdline((), reading)


def added(machine: Machine, word: str, name: str) -> str:
    """The command that adds a word for good, and restarts the machine.

    With apt by a file of that name: it is read after those of cloud images and DGX OS, which set
    the whole line, and can be removed again. A value with `;` must stand in double quotes, as GRUB
    ends a command there (rdma-core, kernel-boot/rdma_topo, write-grub-acs).
    """
    if machine.know(family) == "dnf":
        return restart(f"sudo grubby --update-kernel=ALL --args='{word}'")
    quoted = word.replace('"', r"\"")
    line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {quoted}"'
    write = f"echo '{line}' | sudo tee /etc/default/grub.d/99-{name}.cfg"
    return restart(f"{write} && sudo update-grub")
