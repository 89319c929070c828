# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries that the testbed needs on this machine, and how to install them."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

from ..errors import TestbedError
from ..installation import install_command

# Programs, and the Debian packages that contain them.
_PROGRAMS = {
    "qemu-system-aarch64": "qemu-system-arm",
    "modprobe": "kmod",
    "depmod": "kmod",
    "ip": "iproute2",
    "rdma": "iproute2",
    "setpriv": "util-linux",
}
_LIBRARIES = {"libibverbs.so.1": "libibverbs1", "librdmacm.so.1": "librdmacm1"}


def find(program: str) -> str | None:
    """Return the path of a program, including those in sbin folders; None if it is missing."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def has_apt() -> bool:
    """Return whether this machine has Debian's tools."""
    return bool(shutil.which("apt-get") and shutil.which("dpkg-deb"))


def missing(*, ssh: bool = False) -> list[str]:
    """Return the Debian packages to install; `ssh`: an SSH client is also needed."""
    programs = dict(_PROGRAMS)
    if platform.machine() == "x86_64":
        programs["qemu-system-x86_64"] = "qemu-system-x86"
    absent = [package for program, package in programs.items() if not find(program)]
    command = [find("ldconfig") or "ldconfig", "-p"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    absent += [package for name, package in _LIBRARIES.items() if name not in known]
    if not any(Path("/usr").glob("lib*/**/libibverbs/librxe*.so")):
        absent.append("ibverbs-providers")  # the driver of Soft-RoCE
    if ssh and not find("ssh-keygen"):
        absent.append("openssh-client")
    return sorted(set(absent))


def _install(packages: list[str]) -> list[str]:
    return ["apt-get", "install", "--no-install-recommends", *packages]


def install(packages: list[str]) -> None:
    """Install packages, as root.

    Raises:
        TestbedError: apt-get failed.
    """
    command = _install(packages)
    done = subprocess.run([*command, "--yes"], check=False)
    if done.returncode:
        raise TestbedError(f"`{shlex.join(command)}` failed: see its output above")


def check(*, ssh: bool = False, lab: bool = False) -> None:
    """Raise a TestbedError that names missing programs and the command that installs them.

    Args:
        ssh: Whether an SSH client is also needed.
        lab: Whether JupyterLab is also needed.
    """
    if not has_apt():
        raise TestbedError(
            "the testbed makes its guests from packages of Debian or Ubuntu, and this machine has "
            "no apt-get: use a Debian container"
        )
    if packages := missing(ssh=ssh):
        sudo = "sudo " if os.geteuid() else ""
        raise TestbedError(
            f"the testbed needs {' '.join(packages)}: `{sudo}{shlex.join(_install(packages))}`"
        )
    if lab and not importlib.util.find_spec("jupyterlab"):
        raise TestbedError(
            "the host guest uses this Python's JupyterLab, which is not installed: "
            f"`{install_command('lab')}`"
        )
