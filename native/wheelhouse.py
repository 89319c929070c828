#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build a folder of wheels from which a DPU without internet access installs dgkit.

It gets dgkit's aarch64 wheel, cross-built on this machine, and the wheels of its dependencies.
Requires the cross compiler of Debian or Ubuntu: apt install gcc-aarch64-linux-gnu
libc6-dev-arm64-cross (RHEL's lacks a C library: use a Debian container).
"""

import argparse
import re
import shutil
import struct
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dgkit._version import DISTRIBUTION  # noqa: E402
from dgkit.bluefield.pack import OLDEST_GLIBC, download, run  # noqa: E402
from dgkit.errors import BluefieldError  # noqa: E402

ARM_ELF = 183  # EM_AARCH64, elf.h
EXAMPLES = """\
examples:
  native/wheelhouse.py wheelhouse                      for the Python of BlueField's Ubuntu 22.04
  native/wheelhouse.py wheelhouse --python 3.12        for another Python of the DPU
  native/wheelhouse.py wheelhouse --extra lab          with JupyterLab, to run notebooks on the DPU
"""


def cross_headers(into: Path) -> Path:
    """Copy Python's headers, with a pyconfig.h that works for another architecture.

    Debian's pyconfig.h selects a file by architecture and fails for others. The stable ABI uses
    only type sizes of it, which the compiler checks (build_ffi.py).
    """
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        sys.exit(f"{headers}/Python.h was not found: apt install python3-dev")
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    chosen = headers.parent / multiarch / headers.name / "pyconfig.h"  # Debian's for this machine
    if not chosen.exists():
        chosen = Path(sysconfig.get_config_h_filename())
    shutil.copytree(headers, into)
    shutil.copy(chosen, into / "pyconfig.h")
    return into


def build(scratch: Path) -> Path:
    """Cross-build the wheel. Its tag still names this machine's platform."""
    if not shutil.which("aarch64-linux-gnu-gcc"):
        sys.exit(
            "aarch64-linux-gnu-gcc was not found: "
            "apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        )
    defines = {
        "CMAKE_TOOLCHAIN_FILE": ROOT / "native/aarch64.cmake",
        "DG_PYTHON_INCLUDE": cross_headers(scratch / "include"),
    }
    settings = [f"--config-settings=cmake.define.{name}={path}" for name, path in defines.items()]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*pip, *settings, "--wheel-dir", scratch, ROOT)
    return next(scratch.glob("dgkit_dpu-*.whl"))


def libraries(wheel: Path, into: Path) -> list[Path]:
    """Extract the ELF files of a wheel: the extension and softdoca's libraries.

    Exits if one is not for aarch64.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if archive.open(name).read(4) == b"\x7fELF"]
        found = [Path(archive.extract(name, into)) for name in names]
    for path in found:
        machine = struct.unpack_from("<H", path.read_bytes(), 18)[0]
        if machine != ARM_ELF:
            sys.exit(f"{path.name} is for ELF machine {machine}, not for aarch64 ({ARM_ELF})")
    return found


def needed_glibc(wheel: Path, scratch: Path) -> int:
    """Return the x of the newest glibc 2.x whose symbols the wheel's libraries use."""
    listing = run("aarch64-linux-gnu-objdump", "-p", *libraries(wheel, scratch))
    return max(map(int, re.findall(r"GLIBC_2\.(\d+)", listing)), default=OLDEST_GLIBC)


def retag(wheel: Path, platform: str, into: Path) -> Path:
    """Move the wheel, with another platform in its name and its WHEEL file, by `wheel tags`."""
    tool = wheel.parent / "tool"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tool, "wheel")
    python = ("env", f"PYTHONPATH={tool}", sys.executable)
    name = run(*python, "-m", "wheel", "tags", "--remove", f"--platform-tag={platform}", wheel)
    return Path(shutil.move(wheel.with_name(name.strip()), into))


def main() -> None:
    """Parse the command line and build the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder for the wheels; created if needed")
    parser.add_argument("--python", default="3.10", help="the DPU's Python (default: 3.10)")
    parser.add_argument(
        "--glibc", default="2.35", help="the DPU's glibc (default: 2.35, as in Ubuntu 22.04)"
    )
    parser.add_argument(
        "--extra", action="append", default=[], help="an extra of dgkit, such as lab"
    )
    options = parser.parse_args()
    glibc = int(options.glibc.removeprefix("2."))
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        built = build(scratch)
        needs = max(needed_glibc(built, scratch), OLDEST_GLIBC)
        if needs > glibc:
            sys.exit(f"the wheel needs glibc 2.{needs}, but the DPU has 2.{glibc} (--glibc)")
        wheel = retag(built, f"manylinux_2_{needs}_aarch64", options.folder)
    if "lab" in options.extra and (ROOT / "notebooks").is_dir():  # not in the sdist
        shutil.copytree(
            ROOT / "notebooks/testbed", options.folder / "notebooks", dirs_exist_ok=True
        )
        tutorials = options.folder / "notebooks/tutorials"
        shutil.copytree(ROOT / "notebooks/tutorials", tutorials, dirs_exist_ok=True)
    needed = f"{wheel}[{','.join(options.extra)}]" if options.extra else str(wheel)
    download([needed], options.folder, python=options.python, glibc=glibc)
    wanted = f"'{DISTRIBUTION}[{','.join(options.extra)}]'" if options.extra else DISTRIBUTION
    print(f"{len(list(options.folder.glob('*.whl')))} wheels in {options.folder}. On the DPU:")
    print("  python3 -m venv dgkit-venv")
    print(f"  dgkit-venv/bin/pip install --no-index --find-links {options.folder.name} {wanted}")


if __name__ == "__main__":
    try:
        main()
    except BluefieldError as error:
        sys.exit(str(error))
