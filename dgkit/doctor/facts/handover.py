"""Memory that cannot be locked for a device."""

from __future__ import annotations

import re

from ..machine import Machine

_CMA = re.compile(r"^(CmaTotal|CmaFree): {1,20}(\d{1,12}) kB$", re.MULTILINE | re.ASCII)
_DRIFT = 64 << 10  # kB: the kernel counts free pages approximately


def kept_by_handover(machine: Machine) -> int:
    """Return the bytes that kexec handover keeps from being locked; 0 if none or not known.

    They count as free CMA, and are of no area of CMA: CmaFree is larger than CmaTotal.

    Source: NVIDIA/NV-Kernels, pull request 591.
    """
    found = dict(_CMA.findall(machine.read.text("/proc/meminfo").text))
    free, total = (int(found.get(name, "0")) for name in ("CmaFree", "CmaTotal"))
    return (free - total) << 10 if free - total > _DRIFT else 0
