# SPDX-License-Identifier: Apache-2.0
"""Privileges of this process: capabilities in the initial user namespace."""

from __future__ import annotations

import re

from ..machine import Machine
from .nvidia_smi import smi
from .virtual import container

IPC_LOCK, SYS_ADMIN = 1 << 14, 1 << 21  # linux/capability.h
_UID_MAP = "/proc/self/uid_map"


def in_user_namespace(machine: Machine) -> bool:
    """Return whether the process is in a non-initial user namespace, as in a rootless container.

    Root of such a namespace is another user outside it. In the initial namespace, the map is
    `0 0 4294967295` (user_namespaces(7)).
    """
    words = machine.read.text(_UID_MAP).text.split()
    return bool(words) and words != ["0", "0", "4294967295"]


def holds(machine: Machine, capability: int) -> bool | None:
    """Return whether the process has a capability; None if it is root and that is not known.

    The kernel and NVIDIA's driver use capable(), which capabilities in a user namespace do not
    satisfy. If there is no /proc/self/status, root outside of a container is assumed to have all
    capabilities.
    """
    status, _, euid = machine.read.together(
        ["text /proc/self/status", f"text {_UID_MAP}", "ask euid"]
    )
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", status.text, re.MULTILINE)
    if match:
        return bool(int(match[1], 16) & capability) and not in_user_namespace(machine)
    if euid.data != 0:
        return False
    unread = status.fault not in ("", "absent")
    return None if unread or machine.know(container).engine else True


def has_admin(machine: Machine) -> bool | None:
    """Return whether the process is an administrator for NVIDIA's driver; None if unknown.

    The driver checks capable(CAP_SYS_ADMIN): NVIDIA open GPU kernel modules, os-interface.c,
    os_is_administrator.
    """
    return holds(machine, SYS_ADMIN)


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
