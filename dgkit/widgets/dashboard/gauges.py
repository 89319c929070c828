# SPDX-License-Identifier: Apache-2.0
"""Load of this machine: its CPUs, and its NVIDIA GPUs with their links, by NVML."""

from __future__ import annotations

import os
import time
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from ...memory.gpu_load import GpuLoad, gpu_loads
from ...units import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..base.page_input import Json

_STAT = Path("/proc/stat")
_LEAST_TICKS = 10  # per CPU, usually of 10 ms each: fewer give no percentage


class Gauges:
    """Reads the load of this machine; each reading covers the time since the previous one.

    Attributes:
        series: The last reading as numbers, for a plot: see `history.LOAD`.
    """

    def __init__(self) -> None:
        self.series: tuple[float, ...] = ()
        self._nvlink: dict[int, tuple[float, int, int]] = {}  # GPU -> time, bytes in and out
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
        links = {load.index: self._nvlink_rates(load) for load in loads}
        cpu = self._read_cpu()
        gauges = [cpu, *(gauge for load in loads for gauge in _of_gpu(load, links[load.index]))]
        busy = [load.busy for load in loads if load.busy is not None]
        share = nan if cpu["fraction"] is None else 100 * cpu["fraction"]
        pcie = [(load.received, load.sent) for load in loads]
        self.series = (
            share, sum(busy) / len(busy) if busy else nan, *_total(pcie), *_total(links.values()),
        )  # fmt: skip
        if not loads:
            gauges.append(_gauge("GPU", "none that NVML can read", None, self._why_no_gpu))
        return gauges

    def _nvlink_rates(self, load: GpuLoad) -> tuple[float | None, float | None]:
        """Return the bytes per second in and out since the reading before."""
        if load.nvlink is None:
            return None, None
        now, (received, sent) = time.monotonic(), load.nvlink
        before = self._nvlink.get(load.index)
        self._nvlink[load.index] = now, received, sent
        if before is None or now <= before[0]:
            return None, None
        seconds = now - before[0]
        return max(0, received - before[1]) / seconds, max(0, sent - before[2]) / seconds

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


def _total(rates: Iterable[tuple[float | None, float | None]]) -> tuple[float, float]:
    """Return the sums in and out over all GPUs, in GB/s; NaN where no GPU says any."""
    known = [(one, other) for one, other in rates if one is not None and other is not None]
    if not known:
        return nan, nan
    return sum(one for one, _ in known) / 1e9, sum(other for _, other in known) / 1e9


def _of_gpu(load: GpuLoad, nvlink: tuple[float | None, float | None]) -> Iterator[Json]:
    name = f"GPU {load.index}"
    if load.busy is None:
        yield _gauge(name, "unknown", None, f"{load.name}: {load.why}")
    else:
        yield _gauge(name, f"{load.busy} %", load.busy / 100, f"{load.name}: time with a kernel")
    if load.used is not None and load.total:
        text = f"{size_text(load.used)} of {size_text(load.total)}"
        yield _gauge(f"{name} memory", text, load.used / load.total, f"{load.name}: allocated")
    if nvlink[0] is not None and nvlink[1] is not None:
        text = f"in {_rate(nvlink[0])}, out {_rate(nvlink[1])}"
        yield _gauge(f"{name} NVLink", text, None, f"{load.name}: payload on all its NVLinks")
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
