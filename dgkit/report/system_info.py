# SPDX-License-Identifier: Apache-2.0
"""Description of the machine that took a measurement."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..types import machine_is_emulated
from ..units import size_text

_EMULATED = "emulated "  # before the name of a CPU that does not say so itself


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine that took the measurements, without its host name.

    `virtual` is None if unknown. `engine` is the device that copied, "" for the CPU: a GPU's number
    and name with the driver's version, or DOCA's version with the function's name.
    """

    cpu: str
    cpus: int
    arch: str
    kernel: str
    page_size: int
    virtual: bool | None
    engine: str = ""

    @classmethod
    @lru_cache(maxsize=4)
    def here(cls, cpus: int | None = None, engine: str = "") -> Machine:
        """Describe this machine; `cpus` defaults to the number of CPUs in the affinity mask."""
        cpuinfo = _cpuinfo()
        usable = len(os.sched_getaffinity(0)) if cpus is None else cpus
        name = os.uname()
        page = os.sysconf("SC_PAGE_SIZE")
        fields = (usable, name.machine, name.release, page, _virtual(cpuinfo))
        driver = _nvidia_driver() if engine.startswith("GPU") else ""
        return cls(_cpu_name(cpuinfo), *fields, f"{engine}{driver}")

    def mover(self, provider: str) -> str:
        """Return the provider that moved the bytes, which labels the figures.

        It is `soft` where `cuda` let the CPU copy, as it does between host memories.
        """
        return "soft" if provider == "cuda" and not self.engine else provider

    @property
    def emulated(self) -> bool:
        """True if the CPU was emulated: its times are those of an emulator."""
        return "QEMU TCG" in self.cpu or self.cpu.startswith(_EMULATED)

    def __str__(self) -> str:
        cores = "1 core" if self.cpus == 1 else f"{self.cpus} cores"
        kind = {True: "virtual", False: "not virtual", None: "virtual or not: unknown"}
        system = f"{self.arch}, Linux {self.kernel}, {size_text(self.page_size)} pages"
        engine = f"{self.engine}; " if self.engine else ""
        return f"{engine}{self.cpu}, {cores}, {system}, {kind[self.virtual]}"


def _cpuinfo() -> dict[str, str]:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_name(cpuinfo: Mapping[str, str]) -> str:
    """Return the CPU's model name; on Arm, which reports none, its implementer and part numbers."""
    if "model name" in cpuinfo:
        return cpuinfo["model name"]
    prefix = _EMULATED if machine_is_emulated() else ""
    implementer, part = cpuinfo.get("CPU implementer", "?"), cpuinfo.get("CPU part", "?")
    return f"{prefix}{os.uname().machine} implementer {implementer} part {part}"


def _nvidia_driver() -> str:
    """Return `, driver VERSION` of NVIDIA's loaded kernel modules, or "" if it is unknown."""
    with contextlib.suppress(OSError, IndexError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
        found = [word for word in text.splitlines()[0].split() if word[0].isdigit() and "." in word]
        return f", driver {found[0]}"
    return ""


def _virtual(cpuinfo: Mapping[str, str]) -> bool | None:
    """Return CPUID's hypervisor bit; on Arm, True if the device tree has a hypervisor node."""
    if "flags" in cpuinfo:
        return "hypervisor" in cpuinfo["flags"].split()
    return True if machine_is_emulated() or Path("/proc/device-tree/hypervisor").exists() else None
