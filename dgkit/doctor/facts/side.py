"""Which side a machine is: the Arm cores of a BlueField, or a host."""

from __future__ import annotations

from ..machine import Machine

__all__ = ["side"]


def side(machine: Machine) -> str:
    """`dpu` or `host`.

    NVIDIA's image for BlueField has /etc/mlnx-release; its firmware tables name the platform
    devices MLNXBF.. (Linux, drivers/platform/mellanox) and the product.
    """
    read = machine.read
    release, product, platform = read.together(
        [
            "text /etc/mlnx-release",
            "text /sys/class/dmi/id/product_name",
            "names /sys/bus/platform/devices",
        ]
    )
    named = "bluefield" in product.text.lower() and read.ask("uname").data is not None
    arm = (read.ask("uname").data or {}).get("machine") == "aarch64"
    devices = any(name.startswith("MLNXBF") for name in platform.names)
    return "dpu" if arm and (release.ok or named or devices) else "host"
