"""dgkit for the DPU guest: the wheels of native/wheelhouse.py, unpacked in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import TestbedError
from . import images

# Source: packaging.python.org, "Binary distribution format", the .data directory.
_SCHEMES = ("data", "purelib", "platlib")


def site(folder: Path, root: Path, modules: Sequence[str] = ("dgkit",)) -> Path:
    """Return the folder with the modules of wheels; unpack them if needed.

    Data files for Python's prefix, such as `share`, are in the same folder.

    Call it within images.in_use().

    Args:
        folder: Folder with the wheels of dgkit and of its dependencies.
        root: Files of the guest, whose Python imports the modules.
        modules: Names of wheels that must be among them.

    Raises:
        TestbedError: One of `modules` is not among them, or a wheel is for another Python or
            machine.
    """
    python = next((root / "usr/bin").glob("python3.[0-9]*")).name.removeprefix("python")
    extra = " --extra lab" if "jupyterlab" in modules else ""
    command = f"`native/wheelhouse.py FOLDER --python {python}{extra}`"
    remedy = f"{command} makes a folder of those that fit"
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        if not _fits(wheel, int(python.partition(".")[2])):
            text = f"{wheel} is not for Python {python} on aarch64, the DPU guest's"
            raise TestbedError(f"{text}: {remedy}")
    names = {wheel.name.partition("-")[0] for wheel in wheels}
    if absent := [name for name in modules if name not in names]:
        raise TestbedError(f"{folder} has no wheel of {' and '.join(absent)}: {remedy}")
    made = images.cache() / images.site_name(_digest(wheels))
    if not made.exists():
        _unpack(wheels, made)
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


def _unpack(wheels: list[Path], made: Path) -> None:
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
        try:
            part.rename(made)
        except OSError:  # another process has made it in the meantime
            if not made.exists():
                raise
