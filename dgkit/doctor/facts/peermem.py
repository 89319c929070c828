"""Whether the kernel has an interface that nvidia-peermem can plug into."""

from __future__ import annotations

from ..machine import Machine
from . import gpudirect, versions
from .system import os_release

__all__ = ["dropped"]


def dropped(machine: Machine) -> bool:
    """Whether this is a kernel of Ubuntu's that has none any more: from 6.8 on, unless it is the
    flavour linux-nvidia, or MLNX_OFED or DOCA-OFED brings one.

    Ubuntu, NVIDIA GPUDirect over InfiniBand migration paths.
    """
    if machine.know(os_release).get("ID", "").lower() != "ubuntu":
        return False
    if gpudirect.kernel(machine) < (6, 8) or "nvidia" in gpudirect.release(machine):
        return False
    info, module = machine.read.together(["run ofed_info -s", "text /sys/module/mlx5_core/version"])
    return not (versions.ofed(info.text) or versions.driver(module.text))
