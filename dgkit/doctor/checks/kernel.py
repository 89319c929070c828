"""The Linux kernel: what it must have for GPU memory to be handed to other devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .. import finding, sources
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case
from ..registry import check


@check("kernel-version", "Linux kernel", goals=WITH_GPU)
def version(case: Case) -> Iterator[Finding]:
    """Is the kernel new enough to hand GPU memory on as a dma-buf?"""
    release = str((case.machine.read.ask("uname").data or {}).get("release", ""))
    match = re.match(r"(\d+)\.(\d+)", release)
    source = sources.GPUNETIO("GPU Memory Mapping, Using dmabuf")
    if match is None:
        yield finding.unknown(release or "?", needed="Linux 6.2", why="uname names no version")
        return
    if (int(match[1]), int(match[2])) >= (6, 2):
        yield finding.ok(f"Linux {release}", needed="6.2", sources=[source])
        return
    yield finding.warn(
        f"Linux {release}",
        needed="6.2",
        why="NVIDIA asks for 6.2 before GPU memory is shared as a dma-buf; nvidia-peermem is the "
        "other way.",
        remedy=["sudo apt install linux-generic-hwe-22.04 && sudo reboot"],
        sources=[source],
    )
