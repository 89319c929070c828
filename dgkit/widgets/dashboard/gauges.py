"""Load of this machine: its CPUs, and its NVIDIA GPUs with their PCIe links, by NVML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...memory.gpu_load import GpuLoad, gpu_loads
from ...units import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..base.page_input import Json

_STAT = Path("/proc/stat")
_LEAST_TICKS = 10  # per CPU, usually of 10 ms each: fewer give no percentage


class Gauges:
    """Reads the load of this machine; each reading covers the time since the previous one."""

    def __init__(self) -> None:
        self._cpu_times = _cpu_times()
        self._cpu = _gauge("CPU", "measuring", None, "")
        self._why_no_gpu = ""

    def read(self) -> list[Json]:
        """Return the gauges; blocks for up to 50 ms per GPU.

        Returns:
            One dict per gauge: `name`, `text`, `fraction` (0 to 1; None if it has no limit or is
            unknown) and `title` (where the value is from).
        """
        loads: list[GpuLoad] = []
        if not self._why_no_gpu:  # a missing GPU does not appear later
            loads, self._why_no_gpu = gpu_loads()
        gauges = [self._read_cpu(), *(gauge for load in loads for gauge in _of_gpu(load))]
        if not loads:
            gauges.append(_gauge("GPU", "none that NVML can read", None, self._why_no_gpu))
        return gauges

    def _read_cpu(self) -> Json:
        now = _cpu_times()
        busy, total = (ticks - before for ticks, before in zip(now, self._cpu_times, strict=True))
        cores = os.cpu_count() or 1
        name = "CPU, 1 core" if cores == 1 else f"CPU, {cores} cores"
        if not any(now):
            return _gauge(name, "unknown", None, f"{_STAT} cannot be read")
        if total >= _LEAST_TICKS * cores:
            title = f"of this machine, all processes together: {_STAT}"
            self._cpu_times = now
            self._cpu = _gauge(name, f"{100 * busy / total:.0f} %", busy / total, title)
        return self._cpu


def _cpu_times() -> tuple[int, int]:
    """Return the ticks that all CPUs were busy, and all ticks, since boot; 0, 0 if unknown.

    Source: proc(5), the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
    steal; the guest times after them are parts of user and nice.
    """
    try:
        ticks = [
            int(word) for word in _STAT.read_text(encoding="ascii").split("\n")[0].split()[1:9]
        ]
    except (OSError, ValueError):
        return 0, 0
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def _of_gpu(load: GpuLoad) -> Iterator[Json]:
    name = f"GPU {load.index}"
    if load.busy is None:
        yield _gauge(name, "unknown", None, f"{load.name}: {load.why}")
    else:
        yield _gauge(name, f"{load.busy} %", load.busy / 100, f"{load.name}: time with a kernel")
    if load.used is not None and load.total:
        text = f"{size_text(load.used)} of {size_text(load.total)}"
        yield _gauge(f"{name} memory", text, load.used / load.total, f"{load.name}: allocated")
    if load.received is None or load.sent is None:
        yield _gauge(f"{name} PCIe", "unknown", None, f"{load.name}: {load.why}")
        return
    text = f"in {_rate(load.received)}, out {_rate(load.sent)}"
    fraction = max(load.received, load.sent) / load.link if load.link else None
    limit = f" of {_rate(load.link)}" if load.link else ""
    title = f"{load.name}: received and sent over PCIe{limit} in each direction, during 20 ms"
    yield _gauge(f"{name} PCIe", text, None if fraction is None else min(1.0, fraction), title)


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.2f} GB/s"


def _gauge(name: str, text: str, fraction: float | None, title: str) -> Json:
    rounded = None if fraction is None else round(fraction, 2)
    return {"name": name, "text": text, "fraction": rounded, "title": title}
