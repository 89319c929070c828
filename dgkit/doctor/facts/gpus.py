"""The GPUs of a machine: from sysfs, with what the driver and `nvidia-smi -q` say of each."""

from __future__ import annotations

import msgspec

from ..machine import Machine
from . import nvidia_proc, pci
from .nvidia_smi import SmiGpu, smi

__all__ = ["Gpu", "bar1_size", "gpus", "usable"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function of NVIDIA's; sizes are bytes. None and "": nothing tells.

    `index` is nvidia-smi's, which is not always CUDA's. `bar1_free` is by NVML alone; `bar1_total`
    comes from sysfs where there is no NVML. `addressing` is HMM, ATS or None, in nvidia-smi's word.
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
        """What findings call it."""
        return self.address if self.index is None else f"GPU {self.index} ({self.address})"


def bar1_size(resource: str) -> int | None:
    """BAR1 by the PCI device's `resource` file: the second of the first six regions in use.

    A line has a region's first byte, last byte and flags. BAR0 takes two lines where it is a 64-bit
    one (Hopper), so BAR1 is not always the second line. None if there is none.
    """
    sizes = []
    for line in resource.splitlines()[:6]:
        try:
            first, last = (int(word[:20], 16) for word in line.split()[:2])
        except ValueError:
            return None
        if last > first >= 0:
            sizes.append(last - first + 1)
    return sizes[1] if len(sizes) > 1 else None


def gpus(machine: Machine) -> tuple[Gpu, ...]:
    """All of them, by address; none on a machine without."""
    said = {one.address: (at, one) for at, one in enumerate(machine.know(smi).gpus)}
    known = {one.address for one in machine.know(pci.tree).gpus} | set(said)
    return tuple(
        _gpu(machine, address, *said.get(address, (None, None))) for address in sorted(known)
    )


def usable(machine: Machine) -> tuple[Gpu, ...]:
    """Those that nvidia-smi lists; all where it lists none.

    sysfs shows a container all GPUs of its machine, whichever it was given.
    """
    found = machine.know(gpus)
    return tuple(one for one in found if one.index is not None) or found


def _gpu(machine: Machine, address: str, index: int | None, said: SmiGpu | None) -> Gpu:
    driver = nvidia_proc.information(machine, address)
    said = said or SmiGpu(address, {})
    total = said.size("BAR1 Memory Usage/Total")
    if total is None:
        total = bar1_size(machine.read.text(f"{pci.DEVICES}/{address}/resource").text)
    return Gpu(
        address=address,
        index=index,
        name=said.said("Product Name") or driver.get("Model", ""),
        uuid=said.said("GPU UUID") or driver.get("GPU UUID", ""),
        brand=said.said("Product Brand"),
        architecture=said.said("Product Architecture"),
        memory=said.size("FB Memory Usage/Total"),
        bar1_total=total,
        bar1_free=said.size("BAR1 Memory Usage/Free"),
        persistence=said.flag("Persistence Mode"),
        addressing=said.said("Addressing Mode"),
        mig=said.flag("MIG Mode/Current"),
        virtualization=said.said(
            "GPU Virtualization Mode/Virtualization Mode",
            "GPU Virtualization Mode/Virtualization mode",
        ),
        gsp=said.said("GSP Firmware Version"),
    )
