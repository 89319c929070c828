"""Side of a machine: the Arm cores of a BlueField, or a host."""

from __future__ import annotations

from ..machine import Machine
from .uname import uname

__all__ = ["side"]


def side(machine: Machine) -> str:
    """Return `dpu` or `host`.

    NVIDIA's BlueField image has /etc/mlnx-release and a kernel `..-bluefield`; its DMI tables name
    the product, and it has platform devices MLNXBF.. (Linux, drivers/platform/mellanox).
    """
    release, product, platform = machine.read.together(
        [
            "text /etc/mlnx-release",
            "text /sys/class/dmi/id/product_name",
            "names /sys/bus/platform/devices",
        ]
    )
    system = machine.know(uname)
    named = "bluefield" in f"{product.text} {system.release}".lower()
    devices = any(name.startswith("MLNXBF") for name in platform.names)
    return "dpu" if system.arm and (release.ok or named or devices) else "host"
