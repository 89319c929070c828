# SPDX-License-Identifier: Apache-2.0
"""GPUs of a machine, from sysfs, the driver and `nvidia-smi -q`."""

from __future__ import annotations

import msgspec

from ..machine import Machine
from . import nvidia_proc, pci
from .nvidia_smi import SmiGpu, smi


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, one PCI function. Sizes are in bytes; None and "" mean unknown.

    Attributes:
        address: PCI address.
        index: Index in nvidia-smi, which may differ from CUDA's ordinal.
        memory: Size of the GPU memory.
        bar1_total: Size of BAR1, from NVML or sysfs.
        bar1_free: Free BAR1 space, from NVML only.
        addressing: HMM, ATS or None, as nvidia-smi prints it.
    """

    address: str
    index: int | None = None
    name: str = ""
    uuid: str = ""
    brand: str = ""
    architecture: str = ""
    memory: int | None = None
    bar1_total: int | None = None
    bar1_free: int | None = None
    persistence: bool | None = None
    addressing: str = ""
    mig: bool | None = None
    virtualization: str = ""
    gsp: str = ""

    @property
    def label(self) -> str:
        """Name in findings: `GPU 0 (0000:17:00.0)`."""
        return self.address if self.index is None else f"GPU {self.index} ({self.address})"


def window_sizes(resource: str) -> list[int]:
    """Return the sizes of the used regions among the first six in a `resource` file.

    Each line contains the first address, the last address and the flags of a region.
    """
    sizes = []
    for line in resource.splitlines()[:6]:
        try:
            first, last = (int(word[:20], 16) for word in line.split()[:2])
        except ValueError:
            return []
        if last > first >= 0:
            sizes.append(last - first + 1)
    return sizes


def bar1_size(resource: str) -> int | None:
    """Return the size of BAR1, the second used region: a 64-bit BAR0 (Hopper) takes two lines.

    Return None without a BAR1.
    """
    return next(iter(window_sizes(resource)[1:]), None)


def gpus(machine: Machine) -> tuple[Gpu, ...]:
    """Return all GPUs, sorted by address."""
    listed = {gpu.address: (index, gpu) for index, gpu in enumerate(machine.know(smi).gpus)}
    addresses = {gpu.address for gpu in machine.know(pci.tree).gpus} | set(listed)
    return tuple(
        _read_gpu(machine, address, *listed.get(address, (None, None)))
        for address in sorted(addresses)
    )


def usable(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists, or all GPUs if it lists none.

    In a container, sysfs shows all GPUs of the machine, including those not assigned to it.
    """
    found = machine.know(gpus)
    return tuple(gpu for gpu in found if gpu.index is not None) or found


def _read_gpu(machine: Machine, address: str, index: int | None, listed: SmiGpu | None) -> Gpu:
    driver = nvidia_proc.information(machine, address)
    fields = listed or SmiGpu(address, {})
    total = fields.size("BAR1 Memory Usage/Total")
    if total is None:
        total = bar1_size(machine.read.text(f"{pci.DEVICES}/{address}/resource").text)
    return Gpu(
        address=address,
        index=index,
        name=fields.value("Product Name") or driver.get("Model", ""),
        uuid=fields.value("GPU UUID") or driver.get("GPU UUID", ""),
        brand=fields.value("Product Brand"),
        architecture=fields.value("Product Architecture"),
        memory=fields.size("FB Memory Usage/Total"),
        bar1_total=total,
        bar1_free=fields.size("BAR1 Memory Usage/Free"),
        persistence=fields.flag("Persistence Mode"),
        addressing=fields.value("Addressing Mode"),
        mig=fields.flag("MIG Mode/Current"),
        virtualization=fields.value(
            "GPU Virtualization Mode/Virtualization Mode",
            "GPU Virtualization Mode/Virtualization mode",
        ),
        gsp=fields.value("GSP Firmware Version"),
    )
