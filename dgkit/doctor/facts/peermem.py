"""Whether the kernel has an interface that nvidia-peermem can plug into."""

from __future__ import annotations

from ..machine import Machine
from . import versions
from .system import os_release
from .uname import uname

__all__ = ["lacking"]


def lacking(machine: Machine) -> bool:
    """Whether modprobe will say 'Invalid argument': the kernel has no interface for it.

    MLNX_OFED and DOCA-OFED bring one. Linux itself never had it, and Ubuntu's kernels alone did
    without: up to 6.7, and in the flavour linux-nvidia. False where nothing tells.

    Ubuntu, NVIDIA GPUDirect over InfiniBand migration paths.
    """
    name = machine.know(os_release).get("ID", "").lower()
    info, module = machine.read.together(["run ofed_info -s", "text /sys/module/mlx5_core/version"])
    known = info.ok or info.absent
    if not name or not known or versions.ofed(info.text) or versions.driver(module.text):
        return False
    if name != "ubuntu":
        return True
    linux = machine.know(uname)
    return linux.version >= (6, 8) and "nvidia" not in linux.release
