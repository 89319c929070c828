# SPDX-License-Identifier: Apache-2.0
"""BAR1: the PCI window through which other devices reach GPU memory."""

from __future__ import annotations

from ...units import size_text
from .. import finding, references
from ..facts import config_space, gpudirect
from ..facts.distribution import initramfs
from ..facts.gpudirect import Kind
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..prerequisites import gpu_present
from ..registry import check
from ._devices import per_gpu, smi_command

_SOURCE = (references.GPUNETIO("GPU BAR1 Size"), references.GPUDIRECT("Displaying GPU BAR space"))
_SMALL = 256 << 20  # bytes: BAR1 of a GPU without resizable BAR (the guide's example)
# The driver keeps a part of BAR1: of 256 MiB about 220 can be pinned (NVIDIA/gdrcopy, issue 301).
_RESERVE = 36 << 20
_BIOS = (
    "# BIOS: enable Above 4G Decoding and Resizable BAR, then restart.",
    "# On servers: Large BAR, or MMIO High Size (at least the memory of all GPUs).",
)
_BY_DRIVER = "options nvidia NVreg_EnableResizableBar=1"
_NO_BAR1 = "no BAR1: the memory is the CPU's"
_SHARED_MEMORY = (Kind.SPARK, Kind.TEGRA, Kind.GRACE)


def _mib(size: int) -> str:
    """Return a size in the format of nvidia-smi."""
    return f"{size >> 20} MiB"


@check(
    "bar1-size",
    "BAR1 size",
    asks="Is BAR1 large enough for the memory that is exported at once, and enough of it free?",
    goals=WITH_GPU,
    sides=("host",),
    sources=_SOURCE,
    requires=[gpu_present],
)
@per_gpu
def _bar1_size(case: Case, gpu: Gpu) -> Finding:
    needed = size_text(case.size)
    total, free = gpu.bar1_total, gpu.bar1_free
    if total is None:
        if gpudirect.kind(case.machine, gpu) in _SHARED_MEMORY:
            return finding.n_a(_NO_BAR1)
        reason = case.machine.know(smi).why or "nvidia-smi prints N/A"
        why = f"{reason}, and the PCI device's file `resource` has no size."
        ask = smi_command(case.machine, "nvidia-smi -q -d MEMORY")
        return finding.unknown("?", needed=needed, why=why, remedy=ask)
    left = (total if free is None else free) - _RESERVE * (total <= _SMALL)
    found = f"{_mib(total)}, {'free not known' if free is None else _mib(free) + ' free'}"
    if total < case.size or (total <= _SMALL and left < case.size):
        why = f"Other devices can map at most {_mib(left)}: the driver keeps a part."
        do = [*_enlarge(case.machine, gpu), f"# Or export less than {_mib(left)} at once."]
        return finding.fail(found, needed=needed, why=why, remedy=do)
    if left < case.size:
        why = "Other programs have GPU memory mapped for devices, until they end."
        do = ["nvidia-smi", f"# End them, or export less than {_mib(left)} at once."]
        return finding.fail(found, needed=needed, why=why, remedy=do)
    if total <= _SMALL:
        why = "Enough now, but all exported memory together must fit into it."
        if not _can_grow(case.machine, gpu):
            return finding.ok(found, needed=needed, why=why)
        return finding.warn(found, needed=needed, why=why, remedy=_enlarge(case.machine, gpu))
    return finding.ok(found, needed=needed)


def _can_grow(machine: Machine, gpu: Gpu) -> bool:
    """Return whether the GPU is known to support a larger BAR1."""
    raw = machine.read.raw(f"/sys/bus/pci/devices/{gpu.address}/config").raw
    bars = (bar for bar in config_space.resizable_bars(raw) if bar.number)
    return any(size > (gpu.bar1_total or 0) for bar in bars for size in bar.sizes)


def _enlarge(machine: Machine, gpu: Gpu) -> tuple[str, ...]:
    """Return the remedy that enlarges BAR1; () if its size is fixed."""
    raw = machine.read.raw(f"/sys/bus/pci/devices/{gpu.address}/config").raw
    bars = [bar for bar in config_space.resizable_bars(raw) if bar.number]
    fixed = config_space.has_extended(raw) and not bars
    return ("# The BAR1 of this GPU has a fixed size.",) if fixed else _BIOS


@check(
    "bar1-resizable",
    "Resizable BAR",
    asks="Is BAR1 as large as the GPU's memory, or can it be enlarged?",
    goals=WITH_GPU,
    sides=("host",),
    sources=_SOURCE,
    needed="all of the memory",
    requires=[gpu_present],
)
@per_gpu
def _bar1_resizable(case: Case, gpu: Gpu) -> Finding:
    machine = case.machine
    if gpu.bar1_total is None and gpudirect.kind(machine, gpu) in _SHARED_MEMORY:
        return finding.n_a(_NO_BAR1)
    raw = machine.read.raw(f"/sys/bus/pci/devices/{gpu.address}/config").raw
    bars = [bar for bar in config_space.resizable_bars(raw) if bar.number]
    if gpu.bar1_total is None or gpu.memory is None:
        if bars and all(bar.size == max(bar.sizes, default=0) for bar in bars):
            return finding.ok("at its largest")
        what = "memory" if gpu.bar1_total is not None else "BAR1"
        why = f"The size of {'the GPU memory' if what == 'memory' else what} is not known."
        ask = smi_command(machine, "nvidia-smi -q -d MEMORY")
        return finding.unknown("?", why=why, remedy=ask)
    found = f"BAR1 {_mib(gpu.bar1_total)}, memory {_mib(gpu.memory)}"
    if gpu.bar1_total >= gpu.memory:
        return finding.ok(found)
    known = config_space.has_extended(raw)
    _needed, most = "all of the memory", max((n for bar in bars for n in bar.sizes), default=0)
    sources = [*_SOURCE, references.OPEN_MODULES("kernel-open/nvidia/nv-reg.h")]
    fits = "Memory that is exported at once must fit into BAR1."
    if most > (gpu.bar1_total or 0):
        why = f"The GPU supports a BAR1 of {size_text(most)}; the BIOS assigned less. {fits}"
        write = f"echo '{_BY_DRIVER}' | sudo tee /etc/modprobe.d/nvidia-bar.conf"
        remedy = [write, initramfs(machine), *_BIOS]  # the BIOS last, as it needs a restart
        return finding.warn(found, why=why, remedy=remedy, sources=sources)
    if known and not bars:
        why = "The GPU's BAR1 has a fixed size, unless its firmware has another mode."
    elif known:
        why = "It is the largest that the GPU supports."
    else:
        why = "Only root can read whether the GPU supports more."
    return finding.ok(found, why=f"{why} {fits}", sources=sources)
