# SPDX-License-Identifier: Apache-2.0
"""Remedies that several checks share, and their adaptation to the machine they are printed for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from . import references
from .facts.bluefield import settings_tool
from .facts.distribution import (
    foreign_host,
    has_yum_only,
    image,
    install_command,
    os_release,
    package_manager,
)
from .facts.privileges import refused
from .facts.virtual import container
from .finding import Finding, Verdict
from .machine import Machine

OFF_AND_ON = "shut the host down, and switch its power off and on"
_REBOOT = " && sudo reboot"
_RESTART = "# Then restart the machine: sudo reboot"
_RESTARTS = (_RESTART, "# Restart the machine: sudo reboot")
_ON_HOST = "# On the host, outside the container:"
_INSTALLS = ("sudo apt ", "sudo dnf ", "sudo yum ", "sudo do-release-upgrade")
# Beginnings of commands that change the system or its devices. In a container, they do not work or
# would break the container.
_SYSTEM = (
    *(
        "sudo apt",
        "sudo dnf",
        "sudo yum",
        "sudo modprobe",
        "sudo systemctl",
        "sudo reboot",
        "sudo grubby",
    ),
    *("sudo update-", "sudo dracut", "sudo setpci", "sudo mlx", "sudo mst", "sudo flint"),
    *("sudo rpm", "sudo tee", "sudo /etc/init.d/"),
    *("sudo dpkg", "sudo nvidia-modprobe", "sudo nvidia-smi", "sudo mokutil", "sudo usermod"),
    *("sudo ip ", "sudo do-release", "sudo mknod", "sudo mkdir", "git clone"),
)


def fit(machine: Machine, remedy: Iterable[str]) -> tuple[str, ...]:
    """Return a remedy adapted to this machine.

    A restart becomes a separate instruction. If NVIDIA's firmware tools (MFT) are missing, commands
    use the tools of mstflint instead, and mstflint is installed first if it is missing, too. In a
    container, commands that change the system are marked as commands for the host; if its kernel is
    of another system than the container, packages are named in words. Without apt and
    dnf, their commands become instructions in words; a system that is an image, which lacks other
    programs, too, is changed by those who keep the image. If there is yum but no dnf, commands of
    dnf become commands of yum.
    """
    lines = list(_with_mstflint(machine, list(_restarts_apart(remedy))))
    if host := machine.know(foreign_host):
        lines = [_by_means_of(line, host) for line in lines]
    elif machine.know(image):
        lines = [_for_maintainer(_without_systemd(line, machine), machine) for line in lines]
    elif machine.know(package_manager) == "other":
        lines = [_in_words(line, machine) for line in lines]
    elif machine.know(has_yum_only):
        lines = [line.replace("sudo dnf ", "sudo yum ") for line in lines]
    if machine.know(container).engine and any(map(_changes_system, lines)):
        lines = [_ON_HOST, *(f"# {line}" if _changes_system(line) else line for line in lines)]
    return tuple(lines)


def restart_once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with remedies that restart the machine only once.

    Card settings take effect at a power cycle, not at a restart. If a finding asks for a power
    cycle, the cycle replaces the restarts that other findings ask for.
    """
    alarms = (finding for finding in findings if finding.verdict in (Verdict.WARN, Verdict.FAIL))
    asking = next(
        (finding for finding in alarms if any(OFF_AND_ON in line for line in finding.remedy)), None
    )
    if asking is None:
        return list(findings)
    cycle = f"# The power cycle of {asking.check} restarts the machine, too."
    return [
        msgspec.structs.replace(
            finding, remedy=tuple(cycle if line in _RESTARTS else line for line in finding.remedy)
        )
        for finding in findings
    ]


def _changes_system(line: str) -> bool:
    return line.startswith(_SYSTEM) or (line[:1] != "#" and "| sudo tee " in line)


def _restarts_apart(remedy: Iterable[str]) -> Iterator[str]:
    for line in remedy:
        if line == "sudo reboot":
            yield _RESTARTS[1]
        elif line.endswith(_REBOOT):
            yield from (line.removesuffix(_REBOOT), _RESTART)
        else:
            yield line


_MFT = {"mlxconfig": "mstconfig", "mlxfwreset": "mstfwreset", "flint": "mstflint"}
_ONLINE = "# mstflint has no online update: take the firmware from NVIDIA's download page"


def _with_mstflint(machine: Machine, lines: list[str]) -> Iterator[str]:
    """Yield the lines, with the programs of mstflint if those of MFT are not installed."""
    names = (*_MFT, "mlxfwmanager")
    used = [name for name in names if any(_runs(line, name) for line in lines)]
    tool = machine.know(settings_tool) if used else "mlxconfig"
    if tool == "mlxconfig":
        yield from lines
        return
    if not tool and not machine.know(image):
        yield install_command(machine, "mstflint", "mstflint")
    for line in lines:
        name = next((name for name in used if _runs(line, name)), "")
        if name == "mlxfwmanager":
            yield _ONLINE
        else:
            yield line.replace(f"sudo {name} ", f"sudo {_MFT[name]} ", 1) if name else line


def _runs(line: str, name: str) -> bool:
    return f"sudo {name} " in line


def _in_words(line: str, machine: Machine) -> str:
    """Return an instruction for a distribution whose commands are not known."""
    name = machine.know(os_release).get("ID", "this distribution") or "this distribution"
    return _by_means_of(line, name)


def _by_means_of(line: str, name: str) -> str:
    """Return a command that installs packages as an instruction, with the system's name."""
    if line.startswith(("sudo dracut", "sudo update-initramfs")):
        return f"# Rebuild the initramfs, with the means of {name}"
    if not line.startswith(_INSTALLS):
        return line
    return f"# Install, with the means of {name}: {_packages(line)}"


def _packages(line: str) -> str:
    words = (word for word in line.split() if word[0] != "-" and word not in _COMMAND_WORDS)
    return " ".join(words)


# Programs that a system made as an image lacks, even to root.
_NOT_IN_IMAGES = re.compile(
    r"sudo (?:update-|dracut|grubby|rpm|dpkg|ipmitool|bfb-install|ibv_|mokutil|usermod|do-release)"
)


# Comments that ask for software to be installed or built; a card is not software.
_SOFTWARE = re.compile(
    r"# (?:[^\n]{0,80}\. |(?:Then|Or|First) )?"
    r"(?:[Rr]einstall|[Ii]nstall|Build) (?!an? (?:NIC|[BC]))"
)


def _for_maintainer(line: str, machine: Machine) -> str:
    """Return a command, or if the system's image permits none, a request to its maintainer."""
    name = machine.know(image)
    asked = f"# Ask who keeps the image of {name}:"
    if line.startswith(_INSTALLS):
        return f"{asked} install {_packages(line)}"
    if _SOFTWARE.match(line):
        return f"{asked} {line[2].lower()}{line[3:]}"
    tools = any(_runs(line, tool) for tool in (*_MFT.values(), *_MFT, "mlxfwmanager"))
    if tools and not machine.know(settings_tool):
        return f"{asked} in a privileged container with mstflint: {line.removeprefix('sudo ')}"
    by_api = name in _BY_API and "sudo " in line and "dgkit" not in line
    if line[:1] != "#" and (by_api or _NOT_IN_IMAGES.search(line)):
        return f"{asked} {line.replace('sudo ', '')}"
    return line


# Distributions that have neither systemctl nor a shell to load modules from.
_BY_API = {"talos": "machine configuration", "bottlerocket": "settings"}


def _without_systemd(line: str, machine: Machine) -> str:
    """Return an instruction for a system that is changed through its API only."""
    where = _BY_API.get(machine.know(os_release).get("ID", ""))
    if not where or not line.startswith(("sudo systemctl ", "sudo modprobe ")):
        return line
    what = "kernel module" if " modprobe " in line else "service"
    return f"# In the {where} of {machine.know(os_release)['ID']}: the {what} {line.split()[-1]}"


_COMMAND_WORDS = frozenset({"sudo", "apt", "dnf", "install", "&&", "module", "enable", "upgrade"})


_CDI = "# (CDI; once, on the host: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)"


def with_devices(machine: Machine, *, gpu: bool, infiniband: bool = False) -> list[str]:
    """Return instructions on how this container's engine starts it with devices.

    GPUs are requested by CDI if the engine has no option `--gpus`, or if the container lost access
    to its GPUs: with CDI, the device rules stay in force (NVIDIA Container Toolkit,
    Troubleshooting).
    """
    engine = machine.know(container).engine
    if engine == "Kubernetes":
        limits = ["nvidia.com/gpu: N"] if gpu else []
        limits += ["the resource of the RDMA device plugin"] if infiniband else []
        locks = "; securityContext: capabilities: add: [IPC_LOCK]" if infiniband else ""
        return [f"# In the pod: resources: limits: {' and '.join(limits)}{locks}"]
    if engine not in ("Docker", "Podman", "containerd"):
        return [f"# Pass the device files to the container, by the means of {engine}."]
    lost = any("nvidia" in path for path in machine.know(refused))
    by_cdi = gpu and (engine != "Docker" or lost)
    options = (["--device=nvidia.com/gpu=all"] if by_cdi else ["--gpus all"]) if gpu else []
    if infiniband:
        options += ["--device=/dev/infiniband", "--ulimit memlock=-1", "--cap-add=IPC_LOCK"]
    program = {"containerd": "nerdctl"}.get(engine, engine.lower())
    return [
        f"# Start it with these further options of {program} run:",
        f"# {' '.join(options)}",
        *([_CDI] if by_cdi else []),
    ]


RESETS = references.RESETS("BlueField System-level Reset")
RESETS_DISAGREE = (
    "The GPUNetIO guide cuts the host's power (ipmitool power cycle); NVIDIA's reset and reboot "
    "procedures shut the Arm cores down first, and then a warm reboot of the host suffices."
)


class SettingsAccess(msgspec.Struct, frozen=True):
    """Side on which a card's settings can be changed.

    Attributes:
        on_arm: Whether the judged machine is the card's Arm side.
        arm_address: The card's PCI address on the Arm side if the host may not change the settings
            of the card (zero trust); "" if it may.
    """

    on_arm: bool = False
    arm_address: str = ""

    def command(self, command: Callable[[str], str], address: str) -> str:
        """Return the command for a card, as a comment if it has to run on the other side."""
        if self.arm_address:
            return f"# zero trust: on the Arm side: {command(self.arm_address)}"
        return command(address)


_CUT = "(sudo ipmitool power cycle cuts it at once, without a shutdown)"


def power_cycle(address: str, access: SettingsAccess, *, arm_running: bool) -> list[str]:
    """Return the commands of an orderly power cycle, for the host.

    Args:
        address: PCI address of the card.
        access: Side on which its settings are changed.
        arm_running: Whether Arm cores may be running.
    """
    if access.on_arm:
        return [f"# then shut these Arm cores down (sudo shutdown -h now), and {OFF_AND_ON}"]
    off_and_on = f"# then {OFF_AND_ON} {_CUT}"
    if not arm_running:
        return [off_and_on]
    if access.arm_address:
        return ["# on the Arm side: sudo shutdown -h now", off_and_on]
    return [
        "# shut the Arm cores down, and wait until they are off:",
        f"sudo mlxfwreset -d {address} --yes -l 1 -t 4 r",
        off_and_on,
    ]
