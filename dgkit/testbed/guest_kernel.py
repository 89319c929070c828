# SPDX-License-Identifier: Apache-2.0
"""Kernel of this machine's distribution, with the modules that a guest needs."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ..errors import TestbedError
from . import apt, requirements

_METAS = ("linux-image-{}", "linux-image-generic")  # Debian's, Ubuntu's
_INSMOD = re.compile(r"^insmod (.+\.ko(?:\.\w+)?)(?: |$)", re.MULTILINE)  # options may follow
_PARTS = re.compile(r"^linux-(image|modules|modules-extra)-\d")
# rdma_rxe of Linux 6.1 needs crc32_generic, but does not declare the dependency.
_MODULES = (
    *("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "virtio_net"),
    *("crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"),
)


def packages(architecture: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the packages of the newest kernel that apt knows.

    Args:
        architecture: Debian's name of the architecture: amd64, arm64.
        environment: Result of apt.root(); None for this machine's apt.

    Raises:
        TestbedError: apt knows no kernel.
    """
    for meta in _METAS:
        names = apt.depends(meta.format(architecture), environment)
        wanted = [name for name in names if _PARTS.match(name)]
        for name in wanted:
            parts = [part for part in apt.depends(name, environment) if _PARTS.match(part)]
            wanted += [part for part in parts if part not in wanted]
        if wanted:
            return wanted
    metas = " or ".join(meta.format(architecture) for meta in _METAS)
    raise TestbedError(f"apt knows no package {metas}: `sudo apt update` fetches its lists")


def image(root: Path) -> Path:
    """Return the kernel's file among the files of its packages.

    In Debian's packages from Linux 7.2 on, it is in the folder of the modules.

    Raises:
        TestbedError: The packages contain no kernel.
    """
    for pattern in ("boot/vmlinuz-*", "**/lib/modules/*/vmlinuz"):
        if found := sorted(root.glob(pattern)):
            return found[0]
    raise TestbedError(f"the kernel's packages have no vmlinuz: {root}")


def modules(root: Path) -> list[Path]:
    """Return the modules that a guest loads, in loading order, without built-in modules."""
    folder = next(root.glob("**/lib/modules/*/kernel")).parent
    base, version = folder.parents[2], folder.name
    depmod = [requirements.find("depmod") or "depmod", "-b", str(base), version]
    subprocess.run(depmod, check=True)
    found: list[Path] = []
    for name in _MODULES:
        modprobe = requirements.find("modprobe") or "modprobe"
        command = [modprobe, "-S", version, "-d", str(base), "--show-depends", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += map(Path, _INSMOD.findall(done.stdout))
    return list(dict.fromkeys(found))


def read_module(path: Path) -> tuple[str, bytes]:
    """Return the file name and the bytes of a module; decompress it if needed.

    Raises:
        TestbedError: The program that decompresses it is missing.
    """
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        if not shutil.which("zstd"):
            raise TestbedError(f"zstd is needed for {path.name}: `sudo apt install zstd`")
        command = ["zstd", "-dcq", str(path)]
        return path.stem, subprocess.run(command, capture_output=True, check=True).stdout
    return path.name, path.read_bytes()
