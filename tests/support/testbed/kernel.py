"""A kernel of this machine's distribution, downloaded by apt-get and unpacked, not installed."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_METAS = ("linux-image-{}", "linux-image-generic")  # Debian's, Ubuntu's
_PARTS = re.compile(r"^linux-(image|modules|modules-extra)-\d")
MODULES = (
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "virtio_net",
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
)
MODULES += ("rdma_ucm", "dummy")


class NotAvailable(Exception):
    """No kernel could be had here."""


def _depends(package: str, environment: Mapping[str, str]) -> list[str]:
    command = ["apt-cache", "depends", "--no-recommends", "--no-suggests", package]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return re.findall(r"Depends: (\S+)", found.stdout)


def packages(architecture: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the packages of the newest kernel that apt knows.

    Args:
        architecture: In Debian's terms: amd64, arm64.
        environment: Environment of apt.

    Raises:
        NotAvailable: There is none.
    """
    for meta in _METAS:
        names = _depends(meta.format(architecture), environment)
        wanted = [name for name in names if _PARTS.match(name)]
        for name in wanted:
            parts = [part for part in _depends(name, environment) if _PARTS.match(part)]
            wanted += [part for part in parts if part not in wanted]
        if wanted:
            return wanted
    raise NotAvailable(f"apt knows no {' or '.join(_METAS)}")


def unpacked(folder: Path, architecture: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with boot/ and lib/modules/, downloaded if apt has a newer kernel.

    Args:
        folder: Where to keep it.
        architecture: In Debian's terms: amd64, arm64.
        environment: Environment of apt.

    Raises:
        NotAvailable: No kernel could be downloaded.
    """
    wanted = packages(architecture, environment)
    root = folder / wanted[0]
    if (root / "complete").exists():
        return root
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "debs").mkdir(parents=True)
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", *wanted]
    done = subprocess.run(command, cwd=folder / "debs", check=False, env=environment)
    if done.returncode:
        raise NotAvailable(f"apt-get could not download {', '.join(wanted)}")
    for deb in (folder / "debs").iterdir():
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    shutil.rmtree(folder / "debs")
    base = modules_folder(root).parents[2]
    subprocess.run(["depmod", "-b", base, modules_folder(root).name], check=True)
    (root / "complete").touch()
    return root


def modules_folder(root: Path) -> Path:
    """Return the folder of the kernel's modules: lib/modules/VERSION, or below usr/."""
    return next(root.glob("**/lib/modules/*/kernel")).parent


def image(root: Path) -> Path:
    """Return the kernel itself."""
    return next((root / "boot").glob("vmlinuz-*"))


def modules(root: Path) -> list[Path]:
    """Return the modules that a guest loads, in order. What is built in is left out."""
    folder = modules_folder(root)
    base = folder.parents[2]
    found: list[Path] = []
    for name in MODULES:
        command = ["modprobe", "-S", folder.name, "-d", base, "--show-depends", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += [Path(path) for path in re.findall(r"^insmod (\S+)", done.stdout, re.MULTILINE)]
    return list(dict.fromkeys(found))
