# SPDX-License-Identifier: Apache-2.0
"""Linux distribution, and its commands to install and configure software."""

from __future__ import annotations

import re

from ..._version import DISTRIBUTION
from ..machine import Machine
from . import gpudirect, gpus, nvidia_proc
from .uname import uname
from .virtual import container

_RED_HAT = frozenset({"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"})
_DEBIAN = frozenset({"debian", "ubuntu", "linuxmint", "pop", "raspbian", "devuan", "dgx"})
_MODULAR = frozenset({"8", "9", "2023"})  # Red Hat 8 and 9, Amazon Linux 2023: module streams
_LAST = "580"  # the last driver branch for GPUs before Turing
_CUDA_REPOSITORY = "# NVIDIA's CUDA repository has it"
_UBUNTUS_OWN = "; Ubuntu's own is nvidia-driver-580"


def os_release(machine: Machine) -> dict[str, str]:
    """Parse /etc/os-release: values by name, without quotes."""
    lines = machine.read.text("/etc/os-release").text.splitlines()
    parts = (line.partition("=") for line in lines)
    return {name: value.strip("\"' ") for name, _, value in parts}


def family(machine: Machine) -> str:
    """Return `apt` or `dnf` according to ID and ID_LIKE in /etc/os-release; `apt` if unknown."""
    release = machine.know(os_release)
    ids = {release.get("ID", "").lower(), *release.get("ID_LIKE", "").lower().split()}
    return "dnf" if ids & _RED_HAT else "apt"


def package_manager(machine: Machine) -> str:
    """Return `apt`, `dnf`, or `other` if the distribution is known to have neither."""
    release = machine.know(os_release)
    ids = {release.get("ID", "").lower(), *release.get("ID_LIKE", "").lower().split()} - {""}
    if not ids or ids & _DEBIAN:
        return "apt"
    return "dnf" if ids & _RED_HAT else "other"


_IMAGES = frozenset({"talos", "bottlerocket", "flatcar", "cos", "rhcos", "opensuse-microos"})
_IMAGE_VARIANTS = frozenset({"coreos", "silverblue", "kinoite", "iot"})


def image(machine: Machine) -> str:
    """Return the ID of a system that is an image without a package manager; "" for others."""
    release = machine.know(os_release)
    name = release.get("ID", "").lower()
    micro = re.fullmatch(r"sle?-micro.{0,20}", name)
    fixed = name in _IMAGES or release.get("VARIANT_ID", "").lower() in _IMAGE_VARIANTS
    return name if micro or fixed else ""


def has_yum_only(machine: Machine) -> bool:
    """Return whether there is yum but no dnf: up to Red Hat 7, and on Amazon Linux 2."""
    release = machine.know(os_release)
    major = release.get("VERSION_ID", "").split(".")[0]
    old = {"amzn": ("2", "2018")}.get(release.get("ID", ""), ("6", "7"))
    return machine.know(family) == "dnf" and release.get("ID") != "fedora" and major in old


# How the releases of distributions' kernels end, their names, and what is like them.
_KERNELS = (
    (re.compile(r"\.amzn\d"), "Amazon Linux", {"amzn"}),
    (re.compile(r"\.el\d"), "Red Hat or a like system", {"rhel", "centos"}),
    (re.compile(r"\.fc\d"), "Fedora", {"fedora"}),
    (re.compile(r"-(?:generic|aws|azure|gcp|oracle|nvidia)(?:-64k)?$"), "Ubuntu", {"ubuntu"}),
    (re.compile(r"-talos$"), "Talos", {"talos"}),
)


def foreign_host(machine: Machine) -> str:
    """Return the name of the host's system if its kernel is of another one than this container."""
    if not machine.know(container).engine:
        return ""
    release = machine.know(os_release)
    here = {release.get("ID", "").lower(), *release.get("ID_LIKE", "").lower().split()}
    kernel = machine.know(uname).release
    found = ((name, ids) for form, name, ids in _KERNELS if form.search(kernel))
    return next((name for name, ids in found if here - {""} and not here & ids), "")


def install_command(machine: Machine, apt: str, dnf: str) -> str:
    """Return the command to install packages, given their names in `apt` and `dnf`."""
    return f"sudo dnf install {dnf}" if machine.know(family) == "dnf" else f"sudo apt install {apt}"


def install_dgkit(machine: Machine, extra: str = "") -> list[str]:
    """Return the commands to install dgkit, or one of its extras, as it was installed before."""
    core = machine.read.probe("core").data
    extra = extra and f"[{extra}]"
    if not isinstance(core, dict) or core.get("checkout", True):
        what = f"'.{extra}'" if extra else "--force-reinstall ."
        return ["# in dgkit's folder:", f".venv/bin/pip install {what}"]
    what = f"'{DISTRIBUTION}{extra}'" if extra else f"--force-reinstall {DISTRIBUTION}"
    return [f"pip install {what}"]


def as_root(check: str) -> str:
    """Return the command to run a check as root.

    The PATH of sudo may not contain dgkit, which may be installed only in .venv/bin of its folder.
    """
    return f'sudo "$(command -v dgkit || echo .venv/bin/dgkit)" doctor {check}'


def restart(command: str) -> str:
    """Return a command followed by a reboot, which is skipped if the command fails."""
    return f"{command} && sudo reboot"


def initramfs(machine: Machine) -> str:
    """Return the command to rebuild the initramfs, which contains module options."""
    return "sudo dracut -f" if machine.know(family) == "dnf" else "sudo update-initramfs -u"


def install_driver(machine: Machine) -> list[str]:
    """Return the commands to install or upgrade NVIDIA's driver.

    They install the open kernel modules if these support all GPUs; otherwise branch 580, the last
    branch for GPUs before Turing.

    Source: NVIDIA driver installation guide, Kernel Modules and Advanced Options (switching).
    """
    if machine.know(uname).wsl:
        return ["# Under WSL the driver is installed in Windows, never here"]
    if any(gpu.virtualization.upper() == "VGPU" for gpu in machine.know(gpus.gpus)):
        return ["# The driver of a vGPU has to match its host's: NVIDIA's licence portal has both"]
    red_hat = machine.know(family) == "dnf"
    release = machine.know(os_release)
    ubuntu = "UBUNTU_CODENAME" in release or release.get("ID", "ubuntu").lower() == "ubuntu"
    own = _UBUNTUS_OWN if ubuntu and not red_hat else ""
    if oldest := gpudirect.last_branch(machine):
        names = ", ".join(gpu.name or gpu.address for gpu in machine.know(gpudirect.before_turing))
        return [f"# {names}: {oldest} is the last driver branch; keep it, or use another GPU"]
    if old := machine.know(gpudirect.before_turing):
        names = ", ".join(gpu.name or gpu.address for gpu in old)
        comment = f"# {names}: closed modules only; {_LAST} is the last branch"
        return [
            comment,
            f"{_CUDA_REPOSITORY}{own}",
            restart(_dnf_last(machine) if red_hat else _APT_LAST),
        ]
    command = _dnf_open(machine) if red_hat else _apt_open(machine)
    return [f"{_CUDA_REPOSITORY}{own}{'-open' if own else ''}", restart(command)]


_APT_LAST = f"sudo apt install -y nvidia-driver-pinning-{_LAST} && sudo apt install -y cuda-drivers"


def _apt_open(machine: Machine) -> str:
    if machine.know(nvidia_proc.driver).flavour != "closed":
        return "sudo apt install -y nvidia-open"
    more = " nvidia-driver-open" if machine.know(os_release).get("ID") == "ubuntu" else ""
    return f"sudo apt install --autoremove --purge nvidia-open{more}"


def _modular(machine: Machine) -> bool:
    """Return whether the driver is installed through dnf module streams."""
    release = machine.know(os_release)
    return release.get("ID") != "fedora" and release.get("VERSION_ID", "").split(".")[0] in _MODULAR


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
