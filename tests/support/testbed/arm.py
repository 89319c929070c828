"""The guest with Arm cores: Cortex-A72, as a BlueField-2 has, with arm64 packages as its files."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from support.processes import arm64

from . import kernel
from .guest import Machine

_PACKAGES = ("libc6", "libibverbs1", "librdmacm1", "ibverbs-providers", "iproute2")
_FOLDERS = ("proc", "sys", "dev", "tmp", "run", "root", "programs")


def machine(cache: Path, programs: Iterable[Path]) -> Machine:
    """Return a guest with these programs in /programs.

    Args:
        cache: Folder for its files, which are downloaded at the first call.
        programs: Programs for aarch64.

    Raises:
        arm64.NotAvailable: This machine's apt has no arm64 packages.
        kernel.NotAvailable: It has no arm64 kernel.
    """
    folder, state = cache / "arm64", cache / "arm64/apt"
    root = folder / "root"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        apt = arm64.apt_root(state)
        arm64.unpack(arm64.download(state, apt, *_PACKAGES, "busybox-static"), root)
        for name in _FOLDERS:
            (root / name).mkdir(exist_ok=True)
        kernel.unpacked(folder / "kernel", "arm64", apt)
        shutil.rmtree(state)
        (folder / "complete").touch()
    busybox = next(path for path in root.glob("**/bin/busybox"))
    shell = busybox.with_name("sh")
    if not shell.exists():
        shell.symlink_to("busybox")
    for program in programs:
        shutil.copy(program, root / "programs")
    found = next(path.parent for path in (folder / "kernel").glob("*/complete"))
    return Machine("aarch64", root, found, busybox)
