# SPDX-License-Identifier: Apache-2.0
"""Folder of wheels from which an Arm side without internet access installs dgkit.

native/wheelhouse.py, which cross-builds dgkit's own wheel in a checkout, uses `download`, too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .._version import DISTRIBUTION, __version__
from ..errors import BluefieldError
from ..files import user_folder

OLDEST_GLIBC = 17  # manylinux2014_aarch64, the first tag for aarch64 wheels, is glibc 2.17
_BUILD = Path(__file__).resolve().parents[2] / "native/wheelhouse.py"  # in a checkout only

# pip evaluates markers such as `python_version < "3.11"` for the running Python, not for the one of
# --python-version; this runs pip with the marker environment of the target.
_PIP_FOR_TARGET = """
import sys
from pip._internal.cli.main import main
from pip._vendor.packaging import markers
build, python = markers.default_environment(), sys.argv.pop(1)
target = {"python_version": python, "python_full_version": python + ".0"}
target["platform_machine"] = "aarch64"
markers.default_environment = lambda: {**build, **target}
sys.exit(main())
"""


def cache() -> Path:
    """Return the folder in the user's cache for what is made again if it is gone."""
    return user_folder("CACHE", "bluefield")


def default_folder(python: str, glibc: int) -> Path:
    """Return the folder for the wheels of one kind of Arm side."""
    return cache() / f"{__version__}-python{python}-glibc2.{glibc}"


def wheels(folder: Path) -> list[Path]:
    """Return the wheels of a folder that `pack` has filled; [] for another, or a part of one."""
    found = sorted(folder.glob("*.whl"))
    name = DISTRIBUTION.replace("-", "_")  # as in the names of wheels
    first = f"{name}-{__version__}-", "pip-"  # pip is downloaded last
    complete = all(any(wheel.name.startswith(name) for wheel in found) for name in first)
    return found if complete else []


def pack(folder: Path, *, python: str, glibc: int) -> list[Path]:
    """Fill a folder with the aarch64 wheels of dgkit, of its dependencies, and of pip.

    In a checkout dgkit's own is cross-built; else its release is downloaded.

    Args:
        folder: The folder, created if needed.
        python: Version of the Arm side's Python, such as "3.10".
        glibc: x of its glibc 2.x.

    Returns:
        The wheels.

    Raises:
        BluefieldError: pip or the cross compiler failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if _BUILD.exists():
        run(sys.executable, _BUILD, folder, "--python", python, "--glibc", f"2.{glibc}")
    else:
        download([f"{DISTRIBUTION}=={__version__}"], folder, python=python, glibc=glibc)
    # Debian's and Ubuntu's Python can make an environment, but only without pip.
    download(["pip"], folder, python=python, glibc=glibc)
    return wheels(folder)


def download(wanted: Sequence[str], folder: Path, *, python: str, glibc: int) -> None:
    """Download wheels and those that they need, for that Python and glibc 2.`glibc` on aarch64.

    Raises:
        BluefieldError: There is no pip here, or it found none.
    """
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(glibc, OLDEST_GLIBC - 1, -1)]
    platforms.append("manylinux2014_aarch64")
    pip = [sys.executable, "-c", _PIP_FOR_TARGET, python]
    pip += ["download", "--quiet", "--only-binary=:all:", "--dest", str(folder)]
    pip += ["--python-version", python, "--implementation", "cp"]
    pip += ["--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    run(*pip, *(f"--platform={platform}" for platform in platforms), *wanted)


def run(*command: str | Path) -> str:
    """Run a command and return its output.

    Raises:
        BluefieldError: It failed; the message ends with what it said last.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        if "No module named 'pip'" in done.stderr:
            raise BluefieldError(f"{sys.executable} has no pip: `{sys.executable} -m ensurepip`")
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = said[-1].strip() if said else f"exit status {done.returncode}"
        raise BluefieldError(f"the wheels for the Arm side cannot be made: {last}")
    return done.stdout
