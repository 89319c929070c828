# SPDX-License-Identifier: Apache-2.0
"""dgkit for the DPU guest: the wheels of native/wheelhouse.py, unpacked in the user's cache."""

from __future__ import annotations

import hashlib
import py_compile
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .._version import DISTRIBUTION
from ..errors import TestbedError
from . import images

# Source: packaging.python.org, "Binary distribution format", the .data directory.
_SCHEMES = ("data", "purelib", "platlib")
SITE = "/run/site"  # where the guest sees the modules
BYTECODE = "pycache"  # folder in it, a tree of .pyc files as Python's pycache_prefix has it
# Parts of Python and of the wheels that no program of a guest imports.
_UNUSED = {"test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "distutils", "pydoc_data"}


def site(folder: Path, root: Path, packages: Sequence[str] = (DISTRIBUTION,)) -> Path:
    """Return the folder with the modules of wheels; unpack them if needed.

    Data files for Python's prefix, such as `share`, are in the same folder.

    Call it within images.in_use().

    Args:
        folder: Folder with the wheels of dgkit and of its dependencies.
        root: Files of the guest, whose Python imports the modules.
        packages: Those whose wheels must be among them.

    Raises:
        TestbedError: One of `packages` is not among them, or a wheel is for another Python or
            machine.
    """
    python = next((root / "usr/bin").glob("python3.[0-9]*")).name.removeprefix("python")
    extra = " --extra lab" if "jupyterlab" in packages else ""
    command = f"`native/wheelhouse.py FOLDER --python {python}{extra}`"
    remedy = f"{command} makes a folder of those that fit"
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        if not _fits(wheel, int(python.partition(".")[2])):
            text = f"{wheel} is not for Python {python} on aarch64, the DPU guest's"
            raise TestbedError(f"{text}: {remedy}")
    names = {wheel.name.partition("-")[0].replace("_", "-") for wheel in wheels}
    if absent := [name for name in packages if name not in names]:
        raise TestbedError(f"{folder} has no wheel of {' and '.join(absent)}: {remedy}")
    made = images.cache() / images.site_name(_digest(wheels))
    if not made.exists():
        _unpack(wheels, made, root / f"usr/lib/python{python}")
    return made


def _fits(wheel: Path, minor: int) -> bool:
    """Return whether a wheel is for Python 3.`minor` on aarch64.

    Source: packaging.python.org, "Platform compatibility tags".
    """
    python, abi, platform = wheel.stem.rsplit("-", 3)[1:]
    if platform != "any" and "aarch64" not in platform:
        return False
    for tag in python.split("."):
        version = tag.removeprefix("cp3")
        if tag in ("py3", f"cp3{minor}"):
            return True
        if abi == "abi3" and version.isdigit() and int(version) <= minor:
            return True
    return False


def _digest(wheels: list[Path]) -> str:
    facts = [(wheel.name, wheel.stat().st_size, wheel.stat().st_mtime_ns) for wheel in wheels]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _compile(part: Path, library: Path) -> None:
    """Compile the modules and the guest's standard library, if this Python is of its version.

    At each boot, an emulated processor would take up to a minute for what the guest imports.
    """
    if library.name != f"python{sys.version_info[0]}.{sys.version_info[1]}":
        return
    for folder, there in ((part, SITE), (library, f"/usr/lib/{library.name}")):
        for source in folder.rglob("*.py"):
            name = source.relative_to(folder)
            if _UNUSED.isdisjoint(name.parts):
                target = part / BYTECODE / there.strip("/") / name
                target = target.with_suffix(f".{sys.implementation.cache_tag}.pyc")
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(
                    str(source), str(target), f"{there}/{name}", quiet=2, invalidation_mode=mode
                )


def _unpack(wheels: list[Path], made: Path, library: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="site.", dir=images.cache()) as scratch:
        part = Path(scratch, "site")
        part.mkdir()
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(part)
            except zipfile.BadZipFile as exc:
                raise TestbedError(f"{wheel} is damaged: {exc}") from exc
        for data in part.glob("*.data"):
            for scheme in data.iterdir():
                if scheme.name in _SCHEMES:
                    shutil.copytree(scheme, part, dirs_exist_ok=True)
            shutil.rmtree(data)
        _compile(part, library)
        try:
            part.rename(made)
        except OSError:  # another process has made it in the meantime
            if not made.exists():
                raise
