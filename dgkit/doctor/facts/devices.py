"""Device files that exist and that this process may not open, by a container's rules or by mode."""

from __future__ import annotations

import re

from ..machine import Machine
from .nvidia_smi import smi
from .virtual import container

__all__ = ["RULES", "read_rules", "refused"]

RULES = "/sys/fs/cgroup/devices/devices.list"
_NVIDIA = 195  # Linux, Documentation/admin-guide/devices.txt


def refused(machine: Machine) -> dict[str, str]:
    """Return the device files that may not be opened, with the error: EPERM or EACCES.

    EPERM comes from the rules of a cgroup, EACCES from the file's mode. Cgroups of version 1 show
    their rules, those of version 2 do not.
    """
    data = machine.read.ask("device-files").data
    tried = data if isinstance(data, dict) else {}
    found = {str(k): str(v) for k, v in tried.items() if v in ("EPERM", "EACCES")}
    rules = machine.read.text(RULES)
    if rules.ok and rules.text.strip() and not read_rules(rules.text, _NVIDIA):
        found.setdefault("/dev/nvidiactl", "EPERM")
    if machine.know(smi).trouble == "unknown" and machine.know(container).engine:
        found.setdefault("/dev/nvidiactl", "EPERM")  # NVML could not open a file that is there
    return found


def read_rules(text: str, major: int) -> bool:
    """Return whether the rules of a cgroup of version 1 let character devices be opened."""
    for line in text.splitlines():
        match = re.fullmatch(r"([abc]) (\d{1,9}|\*):(?:\d{1,9}|\*) (\w{1,3})", line.strip())
        if match and match[1] in "ac" and match[2] in (str(major), "*") and "w" in match[3]:
            return True
    return False
