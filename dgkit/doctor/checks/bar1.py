"""BAR1: the window through which other devices reach a GPU's memory."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import size_text
from .. import finding, references
from ..facts import config_space, gpudirect
from ..facts.config_space import Bar
from ..facts.gpudirect import Kind
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..facts.system import initramfs
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import by_smi, each

_SOURCE = (references.GPUNETIO("GPU BAR1 Size"), references.GPUDIRECT("Displaying GPU BAR space"))
_SMALL = 256 << 20  # bytes: what a GPU has without resizable BAR (the guide's example)
_BIOS = (
    "# BIOS: switch on Above 4G Decoding and Resizable BAR, then restart.",
    "# On servers it may be called Large BAR, or MMIO High Size (as large as all GPUs' memory).",
)
_BY_DRIVER = "options nvidia NVreg_EnableResizableBar=1"
_NONE = "no BAR1: the CPU's own memory"
_ONE_MEMORY = (Kind.SPARK, Kind.TEGRA, Kind.GRACE)


def _mib(size: int) -> str:
    """As nvidia-smi writes it."""
    return f"{size >> 20} MiB"


@check("bar1-size", "BAR1 size", goals=WITH_GPU, sides=("host",))
def size(case: Case) -> Iterator[Finding]:
    """Is BAR1 large enough for the memory that is to be lent at once, and enough of it free?"""
    needed = size_text(case.size)

    def judge(gpu: Gpu) -> Finding:
        total, free = gpu.bar1_total, gpu.bar1_free
        if total is None:
            return _no_size(case.machine, gpu, needed)
        left = total if free is None else free
        found = f"{_mib(total)}, {'free not known' if free is None else _mib(free) + ' free'}"
        if total < case.size:
            why = f"No more than {_mib(total)} of GPU memory can be mapped for other devices."
            do = [*_BIOS, f"# Or lend less at once than {_mib(left)}."]
            return finding.fail(found, needed=needed, why=why, remedy=do, sources=_SOURCE)
        if left < case.size:
            why = "Other programs have GPU memory mapped for devices; it is free when they end."
            do = ["nvidia-smi", f"# Lend less at once than {_mib(left)}, or end them."]
            return finding.fail(found, needed=needed, why=why, remedy=do, sources=_SOURCE)
        if total <= _SMALL:
            why = "Enough for now, but all that is lent together must fit in it."
            return finding.warn(found, needed=needed, why=why, remedy=_BIOS, sources=_SOURCE)
        return finding.ok(found, needed=needed, sources=_SOURCE)

    yield from each(case, judge, driver=False)


def _no_size(machine: Machine, gpu: Gpu, needed: str) -> Finding:
    """Where CPU and GPU share their memory nvidia-smi says N/A, but for some of Grace."""
    if gpudirect.kind(machine, gpu) in _ONE_MEMORY:
        return finding.n_a(_NONE)
    said = machine.know(smi).why or "nvidia-smi says N/A"
    why = f"{said}, and the PCI device's file `resource` does not tell."
    ask = by_smi(machine, "nvidia-smi -q -d MEMORY")
    return finding.unknown("?", needed=needed, why=why, remedy=ask, sources=_SOURCE)


@check("bar1-resizable", "Resizable BAR", goals=WITH_GPU, sides=("host",))
def resizable(case: Case) -> Iterator[Finding]:
    """Is BAR1 as large as the GPU's memory, or can it be made so?"""

    def judge(gpu: Gpu) -> Finding:
        machine = case.machine
        if gpu.bar1_total is None and gpudirect.kind(machine, gpu) in _ONE_MEMORY:
            return finding.n_a(_NONE)
        raw = machine.read.raw(f"/sys/bus/pci/devices/{gpu.address}/config").raw
        bars = [one for one in config_space.resizable_bars(raw) if one.number]
        if gpu.bar1_total is None or gpu.memory is None:
            return _unsized(machine, gpu, bars)
        found = f"BAR1 {_mib(gpu.bar1_total)}, memory {_mib(gpu.memory)}"
        if gpu.bar1_total >= gpu.memory:
            return finding.ok(found, needed="all of the memory", sources=_SOURCE)
        return _smaller(machine, gpu, found, bars, known=config_space.whole(raw))

    yield from each(case, judge, driver=False)


def _unsized(machine: Machine, gpu: Gpu, bars: list[Bar]) -> Finding:
    """By the PCI capability alone, where the driver tells no sizes."""
    needed = "all of the memory"
    if bars and all(one.size == max(one.sizes, default=0) for one in bars):
        return finding.ok("at its largest", needed=needed, sources=_SOURCE)
    what = "memory" if gpu.bar1_total is not None else "BAR1"
    why = f"The size of {'the GPU memory' if what == 'memory' else what} is not known."
    ask = by_smi(machine, "nvidia-smi -q -d MEMORY")
    return finding.unknown("?", needed=needed, why=why, remedy=ask, sources=_SOURCE)


def _smaller(machine: Machine, gpu: Gpu, found: str, bars: list[Bar], *, known: bool) -> Finding:
    most = max((size for one in bars for size in one.sizes), default=0)
    remedy = [*_BIOS]
    if most > (gpu.bar1_total or 0):
        why = f"The GPU can have a BAR1 of {size_text(most)}; the BIOS gave it less."
        write = f"echo '{_BY_DRIVER}' | sudo tee /etc/modprobe.d/nvidia-bar.conf"
        remedy = [write, initramfs(machine), *_BIOS]  # the BIOS last: it is reached by a restart
    elif known and not bars:
        why = "The GPU's BAR1 has a fixed size, unless its firmware has another mode."
        remedy = ["# Some professional boards: NVIDIA's Display Mode Selector Tool, mode compute."]
    elif known:
        why = "It is at the largest that the GPU offers."
        remedy = ["# Lend no more at once than fits: dgkit doctor --size"]
    else:
        why = "Only root may read whether the GPU offers more."
        remedy.append(f"sudo lspci -vv -s {gpu.address} | grep -i -A 4 'resizable bar'")
    return finding.warn(
        found,
        needed="all of the memory",
        why=f"{why} What is lent at once must fit in BAR1.",
        remedy=remedy,
        sources=[*_SOURCE, references.OPEN_MODULES("kernel-open/nvidia/nv-reg.h")],
    )
