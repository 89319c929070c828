# SPDX-License-Identifier: Apache-2.0
"""The programs that tests/run needs, and how to get them."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path


def _finds(compiler: str, part: str) -> bool:
    """Return whether a C compiler is installed with this file of a C library."""
    if not shutil.which(compiler):
        return False
    command = [compiler, f"-print-file-name={part}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return Path(found).is_absolute()


def has_libfuzzer() -> bool:
    """Return whether Clang is installed with libFuzzer, which Debian packages separately."""
    if not shutil.which("clang"):
        return False
    command = ["clang", "-fsanitize=fuzzer", "-###", "-x", "c", "/dev/null"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    libraries = (word.strip('"') for word in found.split() if "clang_rt.fuzzer" in word)
    return any(Path(library).exists() for library in libraries)


def _has_rdma() -> bool:
    """Return whether libibverbs, librdmacm and the user-space driver of Soft-RoCE are installed."""
    command = ["ldconfig", "-p"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    drivers = any(Path("/usr").glob("lib*/**/libibverbs/librxe*.so"))
    return "libibverbs.so.1" in found and "librdmacm.so.1" in found and drivers


def _has_pyverbs() -> bool:
    """Return whether the distribution's Python has pyverbs, libibverbs' bindings."""
    command = ["/usr/bin/python3", "-c", "import pyverbs.qp"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _has_guest_tools() -> bool:
    names = (
        f"qemu-system-{platform.machine()}",
        "qemu-system-aarch64",
        "modprobe",
        "depmod",
        "rdma",
        "ssh",
        "ssh-keygen",
    )
    return all(shutil.which(name) for name in names)


_WITH_SBIN = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"


def _can_make_venvs(python: str = sys.executable) -> bool:
    command = [python, "-c", "import ensurepip, venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# Requirement: function that returns whether it is met, and the Debian packages that provide it.
PROGRAMS: dict[str, tuple[Callable[[], bool], str]] = {
    "venv": (_can_make_venvs, "python3-venv"),
    "compiler": (lambda: _finds("cc", "crt1.o"), "gcc libc6-dev"),
    "C++ compiler": (
        lambda: any(shutil.which(name) for name in ("c++", "g++", "clang++")),
        "g++",
    ),
    "Python.h": (
        lambda: Path(sysconfig.get_path("include"), "Python.h").exists(),
        "python3-dev",
    ),
    "cross compiler": (
        lambda: _finds("aarch64-linux-gnu-gcc", "libc.a"),
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    ),
    "emulator": (lambda: bool(shutil.which("qemu-aarch64-static")), "qemu-user-static"),
    "machine emulator": (
        _has_guest_tools,
        "qemu-system-x86 qemu-system-arm kmod iproute2 openssh-client",
    ),
    "sshd": (
        lambda: bool(shutil.which("ssh") and shutil.which("sshd", path=_WITH_SBIN)),
        "openssh-client openssh-server",
    ),
    "RDMA libraries": (_has_rdma, "libibverbs1 librdmacm1 ibverbs-providers"),
    "pyverbs": (_has_pyverbs, "python3-pyverbs"),
    "ibverbs-utils": (lambda: bool(shutil.which("ibv_rc_pingpong")), "ibverbs-utils"),
    "UCX": (lambda: bool(shutil.which("ucx_perftest")), "ucx-utils"),
    "Open MPI": (
        lambda: all(map(shutil.which, ("mpicc", "mpirun"))),
        "openmpi-bin libopenmpi-dev",
    ),
    "libfabric": (lambda: bool(shutil.which("fi_pingpong")), "libfabric-bin"),
    "rdmacm-utils": (lambda: bool(shutil.which("rping")), "rdmacm-utils"),
    "perftest": (lambda: bool(shutil.which("ib_write_lat")), "perftest"),
    "make, pkg-config": (
        lambda: bool(shutil.which("make") and shutil.which("pkg-config")),
        "make pkg-config",
    ),
    "ping": (
        lambda: all(map(shutil.which, ("ping", "ip", "unshare"))),
        "iputils-ping iproute2 util-linux",
    ),
    # libc6-dbg: without it Valgrind does not know the loader's own functions.
    "valgrind": (lambda: bool(shutil.which("valgrind")), "valgrind libc6-dbg"),
    "clang": (has_libfuzzer, "clang libclang-rt-dev"),
    "chromium": (lambda: bool(shutil.which("chromium")), "chromium"),
    "bubblewrap": (lambda: bool(shutil.which("bwrap")), "bubblewrap"),
    "npm": (lambda: bool(shutil.which("npm")), "npm"),
    "apt": (lambda: bool(shutil.which("apt-get") and shutil.which("dpkg-deb")), "apt dpkg"),
}


def missing(names: Iterable[str]) -> str:
    """Return which requirements are not met and the command that installs them, or ""."""
    absent = [name for name in names if not PROGRAMS[name][0]()]
    if not absent:
        return ""
    packages = " ".join(PROGRAMS[name][1] for name in absent)
    return f"{', '.join(absent)} (apt install {packages})"


def install(names: Iterable[str]) -> None:
    """Install missing requirements by apt-get, if this user may; else do nothing."""
    packages = [PROGRAMS[name][1] for name in sorted(names) if not PROGRAMS[name][0]()]
    if not packages or not shutil.which("apt-get"):
        return
    may = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if may and (not shutil.which("sudo") or subprocess.run([*may, "true"], check=False).returncode):
        return
    apt = [*may, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run([*apt, "update"], check=False)
    command = [*apt, "install", "-y", "--no-install-recommends", *" ".join(packages).split()]
    subprocess.run(command, check=False)


def pythons() -> list[str]:
    """Return this Python, and the oldest and newest other installed ones that dgkit supports."""
    minors = [minor for minor in range(10, 20) if minor != sys.version_info.minor]
    paths = [shutil.which(f"python3.{minor}") for minor in minors]
    others = [path for path in paths if path and _can_make_venvs(path)]
    return [sys.executable, *others[:1], *others[1:][-1:]]
