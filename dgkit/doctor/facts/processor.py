"""Processor model, by /proc/cpuinfo."""

from __future__ import annotations

import re

from ..machine import Machine

__all__ = ["is_first_qpi", "is_intel_client"]


def is_intel_client(machine: Machine) -> bool:
    """Return whether the CPU is one of Intel's for desktops and notebooks, not a Xeon."""
    text = machine.read.text("/proc/cpuinfo").text
    vendor = re.search(r"^vendor_id\s*:\s*GenuineIntel", text, re.MULTILINE)
    model = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return bool(vendor and model and re.search(r"\bCore\b", model[1].replace("(TM)", " ")))


def is_first_qpi(machine: Machine) -> bool:
    """Return whether the CPUs are Xeon E5 or E7 of 2012 to 2014, slow between PCIe and QPI.

    NVIDIA GPUDirect RDMA, Supported Systems: between sockets the throughput is much reduced or the
    platform fails. Xeon E5-2670 0 is the first generation, v2 the second.
    """
    text = machine.read.text("/proc/cpuinfo").text
    return bool(
        re.search(r"^model name\s*:.*\bXeon.*\bE[57]-\d+\w* (?:0|v2)\b", text, re.MULTILINE)
    )
