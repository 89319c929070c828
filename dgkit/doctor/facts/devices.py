"""Device files that exist but may not be opened, because of a container's rules or the mode."""

from __future__ import annotations

import re

from ..machine import Machine
from .nvidia_smi import smi
from .virtual import container

RULES = "/sys/fs/cgroup/devices/devices.list"
_NVIDIA = 195  # Linux, Documentation/admin-guide/devices.txt


def refused(machine: Machine) -> dict[str, str]:
    """Return the device files that this process may not open, with the error: EPERM or EACCES.

    EPERM comes from the device rules of a cgroup, EACCES from the mode of the file. The rules can
    be read in cgroup version 1 but not in version 2.
    """
    data = machine.read.ask("device-files").data
    tried = data if isinstance(data, dict) else {}
    found = {str(k): str(v) for k, v in tried.items() if v in ("EPERM", "EACCES")}
    rules = machine.read.text(RULES)
    if rules.ok and rules.text.strip() and not read_rules(rules.text, _NVIDIA):
        found.setdefault("/dev/nvidiactl", "EPERM")
    if machine.know(smi).trouble == "unknown" and machine.know(container).engine:
        found.setdefault("/dev/nvidiactl", "EPERM")  # NVML could not open an existing file
    return found


def read_rules(text: str, major: int) -> bool:
    """Return whether cgroup v1 rules permit opening character devices with this major number."""
    for line in text.splitlines():
        match = re.fullmatch(r"([abc]) (\d{1,9}|\*):(?:\d{1,9}|\*) (\w{1,3})", line.strip())
        if match and match[1] in "ac" and match[2] in (str(major), "*") and "w" in match[3]:
            return True
    return False
