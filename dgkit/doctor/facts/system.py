"""The distribution: how things are installed on it."""

from __future__ import annotations

from ..machine import Machine
from . import gpudirect, nvidia_proc

__all__ = ["as_root", "driver_anew", "family", "initramfs", "install", "of_dgkit", "os_release"]
__all__ += ["restart"]

_RED_HAT = frozenset({"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"})
_MODULAR = frozenset({"8", "9", "2023"})  # Red Hat's 8 and 9, Amazon Linux: streams of a module
_LAST = "580"  # the last branch that drives GPUs before Turing
_REPOSITORY = {
    "apt": "# NVIDIA's CUDA repository has it; Ubuntu's own is nvidia-driver-580",
    "dnf": "# NVIDIA's CUDA repository (cuda-rhel*.repo) has it",
}


def os_release(machine: Machine) -> dict[str, str]:
    """/etc/os-release, by name, without the quotes."""
    lines = machine.read.text("/etc/os-release").text.splitlines()
    parts = (line.partition("=") for line in lines)
    return {name: value.strip("\"' ") for name, _, value in parts}


def family(machine: Machine) -> str:
    """`apt` or `dnf`, by ID and ID_LIKE in /etc/os-release; `apt` where nothing tells."""
    said = machine.know(os_release)
    words = {said.get("ID", "").lower(), *said.get("ID_LIKE", "").lower().split()}
    return "dnf" if words & _RED_HAT else "apt"


def install(machine: Machine, apt: str, dnf: str) -> str:
    """The command that installs packages here, as root: `apt` and `dnf` are their names there."""
    return f"sudo dnf install {dnf}" if machine.know(family) == "dnf" else f"sudo apt install {apt}"


def of_dgkit(what: str) -> list[str]:
    """What installs dgkit with an extra (`.[lab]`), or anew (`.`): it is on no index."""
    return ["# in dgkit's folder:", f".venv/bin/pip install '{what}'"]


def as_root(check: str) -> str:
    """What asks a check with all rights. sudo may have another PATH, and whoever has dgkit by its
    folder's .venv/bin has it in none."""
    return f'sudo "$(command -v dgkit || echo .venv/bin/dgkit)" doctor {check}'


def restart(command: str) -> str:
    """The command and a restart, which does not come if the command fails."""
    return f"{command} && sudo reboot"


def initramfs(machine: Machine) -> str:
    """What brings options of modules into the image that the kernel starts from."""
    return "sudo dracut -f" if machine.know(family) == "dnf" else "sudo update-initramfs -u"


def driver_anew(machine: Machine) -> list[str]:
    """What installs NVIDIA's driver, or a newer one: with the open kernel modules where they drive
    all GPUs, else branch 580, which is the last for GPUs before Turing.

    NVIDIA driver installation guide, Kernel Modules and Advanced Options (switching).
    """
    red_hat = machine.know(family) == "dnf"
    where = _REPOSITORY[machine.know(family)]
    if old := machine.know(gpudirect.before_turing):
        names = ", ".join(one.name or one.address for one in old)
        words = f"# {names}: closed modules alone, and {_LAST} is the last branch for it"
        return [words, where, restart(_dnf_last(machine) if red_hat else _APT_LAST)]
    command = _dnf_open(machine) if red_hat else _apt_open(machine)
    return [where + ("" if red_hat else "-open"), restart(command)]


_APT_LAST = f"sudo apt install -y nvidia-driver-pinning-{_LAST} && sudo apt install -y cuda-drivers"


def _apt_open(machine: Machine) -> str:
    if machine.know(nvidia_proc.driver).flavour != "closed":
        return "sudo apt install -y nvidia-open"
    more = " nvidia-driver-open" if machine.know(os_release).get("ID") == "ubuntu" else ""
    return f"sudo apt install --autoremove --purge nvidia-open{more}"


def _modular(machine: Machine) -> bool:
    said = machine.know(os_release)
    return said.get("ID") != "fedora" and said.get("VERSION_ID", "").split(".")[0] in _MODULAR


def _dnf_open(machine: Machine) -> str:
    closed = machine.know(nvidia_proc.driver).flavour == "closed"
    if _modular(machine) and closed:
        return "sudo dnf -y module switch-to nvidia-driver:open-dkms --allowerasing"
    if _modular(machine):
        enable = "sudo dnf -y module enable nvidia-driver:open-dkms"
        return f"{enable} && sudo dnf -y install nvidia-open"
    return f"sudo dnf -y install{' --allowerasing' if closed else ''} nvidia-open"


def _dnf_last(machine: Machine) -> str:
    lock = f"sudo dnf versionlock '*nvidia*{_LAST}*'"
    if _modular(machine):
        lock = f"sudo dnf -y module enable nvidia-driver:{_LAST}-dkms"
    return f"{lock} && sudo dnf -y install cuda-drivers"
