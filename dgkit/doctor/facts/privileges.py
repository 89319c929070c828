"""Privileges of this process: capabilities in the initial user namespace."""

from __future__ import annotations

import re

from ..machine import Machine
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
