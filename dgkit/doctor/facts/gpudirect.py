# SPDX-License-Identifier: Apache-2.0
"""Access of other devices to GPU memory: dma-buf, nvidia-peermem, and GPUs without GPUDirect."""

from __future__ import annotations

from enum import Enum

import msgspec

from ..machine import Machine
from . import gpus, nvidia_proc, pci
from .cuda import attribute
from .gpus import Gpu
from .nvidia_proc import version_key
from .uname import uname

# Architectures before Turing: the open kernel modules, and therefore dma-buf, do not support them.
_TOO_OLD = frozenset({"fermi", "kepler", "maxwell", "pascal", "volta"})
_TURING = 0x1E00  # in the PCI ID list, Volta's devices end at 1dff and Turing's begin at 1e02


class Kind(Enum):
    """Kind of GPU with respect to GPUDirect."""

    SPARK = "GB10 (DGX Spark)"
    TEGRA = "integrated GPU (Tegra)"
    GEFORCE = "GeForce"
    GRACE = "coherent with the CPU (Grace)"
    BOARD = "discrete GPU"

    @property
    def direct(self) -> bool:
        """True if NVIDIA documents GPUDirect for this kind; CUDA attributes take precedence."""
        return self in (Kind.GRACE, Kind.BOARD)


class DmaBuf(msgspec.Struct, frozen=True):
    """Support for exporting GPU memory as a dma-buf.

    Attributes:
        works: None if unknown.
        reported: Whether CUDA reported `works`; if not, it follows from the conditions in `why`.
        why: Reason.
    """

    works: bool | None
    reported: bool
    why: str


def dma_buf(machine: Machine, gpu: Gpu) -> DmaBuf:
    """Return dma-buf support: CUDA's DMA_BUF_SUPPORTED, else by kernel, modules, driver and GPU.

    Requirements: Linux 5.12, open kernel modules, Turing, and CUDA 11.7, which came with driver 515
    (NVIDIA GPU Operator documentation, GPUDirect RDMA, Prerequisites).
    """
    value = attribute(machine, gpu, "DMA_BUF_SUPPORTED")
    against = _obstacle(machine, gpu)
    if value is not None:
        return DmaBuf(bool(value), True, "" if value else against)
    if against:
        return DmaBuf(False, False, against)
    driver = machine.know(nvidia_proc.driver)
    linux = machine.know(uname).version
    if driver.flavour != "open" or not linux:
        what = "kernel version" if driver.flavour == "open" else "flavour of the kernel modules"
        return DmaBuf(None, False, f"CUDA was not queried, and the {what} is unknown")
    number = ".".join(map(str, linux))
    return DmaBuf(True, False, f"open modules {driver.version}, Linux {number}")


def before_turing(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs that the open kernel modules do not support: by architecture, else by ID."""
    devices = machine.know(pci.tree).devices

    def older(gpu: Gpu) -> bool:
        if gpu.architecture:
            return gpu.architecture.lower() in _TOO_OLD
        return gpu.address in devices and 0 < devices[gpu.address].device < _TURING

    return tuple(gpu for gpu in machine.know(gpus.gpus) if older(gpu))


# In the PCI ID list, Blackwell's first device is 2900 (GB100); Hopper's and Ada's end at 28ff.
_BLACKWELL = 0x2900


def is_open_only(machine: Machine, gpu: Gpu) -> bool:
    """Return whether only the open kernel modules drive a GPU: Blackwell and later."""
    devices = machine.know(pci.tree).devices
    return gpu.address in devices and devices[gpu.address].device >= _BLACKWELL


# Last driver branch that supports each architecture before Turing, and its PCI device IDs.
# NVIDIA, CUDA GPU driver support: Fermi 390; Kepler 470; Maxwell, Pascal and Volta 580.
_BRANCHES = {"fermi": 390, "kepler": 470}
# In the PCI ID list: GK107 and GK110; GK104 and GK106; GK208. Fermi's IDs lie around these.
_KEPLER = (range(0x0FC0, 0x1040), range(0x1180, 0x1200), range(0x1280, 0x12C0))
_FERMI = range(0x06C0, 0x1340)


def last_branch(machine: Machine) -> int:
    """Return the last driver branch for the oldest GPU if it is older than 580, else 0."""
    devices = machine.know(pci.tree).devices
    found = []
    for gpu in machine.know(before_turing):
        device = devices[gpu.address].device if gpu.address in devices else 0
        by_id = "fermi" if device in _FERMI else ""
        by_id = "kepler" if any(device in ids for ids in _KEPLER) else by_id
        found.append(_BRANCHES.get(gpu.architecture.lower() or by_id, 0))
    return min((branch for branch in found if branch), default=0)


def _obstacle(machine: Machine, gpu: Gpu) -> str:
    """Return the reason that rules out dma-buf, "" if none is known."""
    driver, linux = machine.know(nvidia_proc.driver), machine.know(uname).version
    if gpu.architecture.lower() in _TOO_OLD:
        return f"{gpu.architecture} is older than Turing, and open kernel modules do not drive it"
    if driver.flavour == "closed":
        return "the kernel modules are the closed ones"
    if linux and linux < (5, 12):
        return f"Linux {linux[0]}.{linux[1]} is older than 5.12"
    if driver.version and (0,) < version_key(driver.version) < (515,):
        return f"driver {driver.version} is older than 515"
    return (
        ""
        if kind(machine, gpu).direct
        else f"no GPUDirect on this kind: {kind(machine, gpu).value}"
    )


def is_direct(machine: Machine) -> bool:
    """Return whether other devices can access the memory of at least one GPU of this machine."""
    return any(kind(machine, gpu).direct for gpu in gpus.usable(machine))


def kind(machine: Machine, gpu: Gpu) -> Kind:
    """Classify a GPU by its name, CUDA's attribute INTEGRATED and the firmware's product name."""
    tree, product = machine.read.together(
        ["text /proc/device-tree/model", "text /sys/class/dmi/id/product_name"]
    )
    model = f"{tree.text} {product.text}".lower()
    words = gpu.name.lower()
    if "gb10" in words.split() or "dgx spark" in model or "dgx_spark" in model:
        return Kind.SPARK
    grace = any(word in words for word in ("gh200", "gb200", "gb300"))
    if grace or gpu.addressing.upper() == "ATS":
        return Kind.GRACE
    jetson = any(word in model for word in ("jetson", "tegra"))
    if attribute(machine, gpu, "INTEGRATED") or jetson or "(nvgpu)" in words:
        return Kind.TEGRA
    if "geforce" in words or gpu.brand.lower() == "geforce":
        return Kind.GEFORCE
    return Kind.BOARD
