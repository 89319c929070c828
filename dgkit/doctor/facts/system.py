"""The distribution: how things are installed on it."""

from __future__ import annotations

from ..machine import Machine

__all__ = ["driver_anew", "family", "install"]

_RED_HAT = frozenset({"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"})


def family(machine: Machine) -> str:
    """`apt` or `dnf`, by ID and ID_LIKE in /etc/os-release; `apt` where nothing tells."""
    lines = machine.read.text("/etc/os-release").text.splitlines()
    parts = (line.partition("=") for line in lines)
    said = {name: value.strip("\"' ").lower() for name, _, value in parts}
    words = {said.get("ID", ""), *said.get("ID_LIKE", "").split()}
    return "dnf" if words & _RED_HAT else "apt"


def install(machine: Machine, apt: str, dnf: str) -> str:
    """The command that installs packages here, as root: `apt` and `dnf` are their names there."""
    return f"sudo dnf install {dnf}" if machine.know(family) == "dnf" else f"sudo apt install {apt}"


def driver_anew(machine: Machine) -> list[str]:
    """What installs NVIDIA's driver, or a newer one, with the open kernel modules."""
    source = {
        "apt": "# It is in NVIDIA's CUDA repository; Ubuntu's own is nvidia-driver-580-open.",
        "dnf": "# It is in NVIDIA's CUDA repository (cuda-rhel*.repo).",
    }[machine.know(family)]
    return [install(machine, "nvidia-open", "nvidia-open"), source, "sudo reboot"]
