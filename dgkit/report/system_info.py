"""The machine that took a figure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..units import size_text

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that took the figures; not its name. `virtual` is None where nothing tells.

    `engine` is what copied, if that was not plainly the CPU: a GPU's number and name, and its
    driver's version; DOCA's version and the function's name.
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
        """This machine; `cpus` that may be used at once, else those of the affinity mask."""
        facts = _cpuinfo()
        usable = len(os.sched_getaffinity(0)) if cpus is None else cpus
        name = os.uname()
        page = os.sysconf("SC_PAGE_SIZE")
        known = (usable, name.machine, name.release, page, _virtual(facts))
        driver = _nvidia() if engine.startswith("GPU") else ""
        return cls(_cpu_name(facts), *known, f"{engine}{driver}")

    def mover(self, provider: str) -> str:
        """The provider whose label figures of `provider` get: where `cuda` had the CPU copy, as it
        does between memories of the host, that is `soft`."""
        return "soft" if provider == "cuda" and not self.engine else provider

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


def _cpu_name(facts: Mapping[str, str]) -> str:
    """The model's name; Arm's /proc/cpuinfo has none, but the implementer's and part's numbers."""
    if "model name" in facts:
        return facts["model name"]
    implementer, part = facts.get("CPU implementer", "?"), facts.get("CPU part", "?")
    return f"{os.uname().machine} implementer {implementer} part {part}"


def _nvidia() -> str:
    """The version of NVIDIA's loaded kernel modules: the first line of the file names it."""
    with contextlib.suppress(OSError, IndexError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
        found = [word for word in text.splitlines()[0].split() if word[0].isdigit() and "." in word]
        return f", driver {found[0]}"
    return ""


def _virtual(facts: Mapping[str, str]) -> bool | None:
    """From CPUID's hypervisor bit; on Arm a hypervisor node in the device tree says yes."""
    if "flags" in facts:
        return "hypervisor" in facts["flags"].split()
    return True if Path("/proc/device-tree/hypervisor").exists() else None
