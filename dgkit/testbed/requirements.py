"""Programs and libraries that the testbed needs on this machine, and how to install them."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path

from ..errors import TestbedError

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


def missing() -> list[str]:
    """Return the Debian packages to install."""
    programs = dict(_PROGRAMS)
    if platform.machine() == "x86_64":
        programs["qemu-system-x86_64"] = "qemu-system-x86"
    absent = [package for program, package in programs.items() if not find(program)]
    command = [find("ldconfig") or "ldconfig", "-p"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    absent += [package for name, package in _LIBRARIES.items() if name not in known]
    if not any(Path("/usr").glob("lib*/**/libibverbs/librxe*.so")):
        absent.append("ibverbs-providers")  # the driver of Soft-RoCE
    return sorted(set(absent))


def check(*, ssh: bool = False, lab: bool = False) -> None:
    """Raise a TestbedError that names missing programs and the command that installs them.

    Args:
        ssh: Whether an SSH client is also needed.
        lab: Whether JupyterLab is also needed.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise TestbedError(
            "the testbed makes its guests from packages of Debian or Ubuntu, and this machine has "
            "no apt-get: use a Debian container"
        )
    packages = missing()
    if ssh and not find("ssh-keygen"):
        packages.append("openssh-client")
    if packages:
        names = " ".join(packages)
        raise TestbedError(f"the testbed needs {names}: `sudo apt install {names}`")
    if lab and not importlib.util.find_spec("jupyterlab"):
        raise TestbedError(
            "the host guest uses this Python's JupyterLab, which is not installed: "
            "`pip install 'dgkit[lab]'`"
        )
