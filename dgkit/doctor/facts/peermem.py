"""Kernel interface required by nvidia-peermem."""

from __future__ import annotations

from ..machine import Machine
from . import versions
from .distribution import os_release
from .uname import uname

__all__ = ["lacks_interface"]


def lacks_interface(machine: Machine) -> bool:
    """Return whether the kernel lacks it, so that modprobe fails with 'Invalid argument'.

    MLNX_OFED and DOCA-OFED provide it. Mainline Linux never did; of the distribution kernels, only
    Ubuntu's do: up to 6.7, and those of the flavour linux-nvidia. False if unknown.

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
