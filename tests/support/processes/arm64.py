# SPDX-License-Identifier: Apache-2.0
"""An aarch64 CPython from Debian's packages, run by QEMU's user-mode emulation.

As a program (by a Python that has dgkit), it unpacks that Python into a folder.
"""

import shutil
import sys
from pathlib import Path

CPU = "cortex-a72"  # BlueField-2's; Armv8.0, so an LSE instruction that is not asked for dies


def python(folder: Path) -> list[str | Path]:
    """Return the command that runs the Python unpacked in `folder`."""
    root = folder / "root"
    program = next((root / "usr/bin").glob("python3.[0-9]*"))
    return ["qemu-aarch64-static", "-cpu", CPU, "-L", root, program]


def version(folder: Path) -> str:
    """Return its version in the form 3.x."""
    return next((folder / "root/usr/bin").glob("python3.[0-9]*")).name.removeprefix("python")


def main(folder: Path) -> None:
    """Download and unpack it, unless an earlier call did."""
    from dgkit.testbed import apt

    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    environment = apt.root(folder / "apt", "arm64")
    packages = apt.download(folder / "apt", "python3", "libstdc++6", environment=environment)
    apt.unpack(packages, folder / "root")
    (folder / "complete").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
