# SPDX-License-Identifier: Apache-2.0
"""Grace and GB10: GPUs that use the CPU's page tables, through the SMMU."""

from __future__ import annotations

from ..machine import Machine
from . import gpus, pci
from .cmdline import cmdline
from .gpudirect import Kind, kind
from .uname import uname

_PASID_LINUX = (6, 11)  # first release whose SMMU driver allows a PASID on a passthrough domain


def is_coherent(machine: Machine) -> bool:
    """Return whether a GPU is coherent with an Arm CPU, and so depends on the SMMU."""
    coherent = (Kind.GRACE, Kind.SPARK)
    found = machine.know(gpus.gpus)
    return machine.know(uname).arm and any(kind(machine, gpu) in coherent for gpu in found)


def smmu_passthrough(machine: Machine) -> bool:
    """Return whether a coherent GPU is in an SMMU passthrough domain on Linux before 6.11.

    The SMMU then has no table of contexts, so the driver cannot bind the page tables of a process
    and CUDA cannot create a context. Translating domains (iommu.passthrough=0) or Linux 6.11 work.

    Linux, drivers/iommu/arm/arm-smmu-v3 (STRTAB_STE_1_S1DSS_BYPASS); NVIDIA/NV-Kernels, pull 22.
    """
    linux = machine.know(uname).version
    if not (is_coherent(machine) and () < linux < _PASID_LINUX):  # (): not known
        return False
    links = [f"link {pci.DEVICES}/{gpu.address}/iommu_group" for gpu in machine.know(gpus.gpus)]
    numbers = {group.text.rpartition("/")[2] for group in machine.read.together(links) if group.ok}
    files = [f"text /sys/kernel/iommu_groups/{number}/type" for number in sorted(numbers)]
    types = {reading.text.strip() for reading in machine.read.together(files) if reading.ok}
    return "identity" in types if types else machine.know(cmdline).iommu == "passthrough"
