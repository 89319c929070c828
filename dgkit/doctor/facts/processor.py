"""Processor model, by /proc/cpuinfo."""

from __future__ import annotations

import re

from ..machine import Machine

__all__ = ["is_intel_client"]


def is_intel_client(machine: Machine) -> bool:
    """Return whether the CPU is one of Intel's for desktops and notebooks, not a Xeon."""
    text = machine.read.text("/proc/cpuinfo").text
    vendor = re.search(r"^vendor_id\s*:\s*GenuineIntel", text, re.MULTILINE)
    model = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return bool(vendor and model and re.search(r"\bCore\b", model[1].replace("(TM)", " ")))
