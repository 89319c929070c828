"""GDRCopy: GPU memory for the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc
from ..facts.system import family
from ..finding import Finding
from ..goals import Goal
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import nothing

_SOURCES = (references.GPUNETIO("GDRCopy Installation"), references.GDRCOPY("README"))
_CLONE = "git clone https://github.com/NVIDIA/gdrcopy.git"
_DEB = "build-essential devscripts debhelper check libsubunit-dev fakeroot pkg-config dkms"
# Packages, whose module DKMS builds and each start loads: insmod.sh's is gone after a restart.
_PACKAGES = {
    "apt": (
        f"sudo apt install {_DEB}",
        f"{_CLONE} && cd gdrcopy/packages && CUDA=/usr/local/cuda ./build-deb-packages.sh",
        "sudo dpkg -i gdrdrv-dkms_*.deb libgdrapi_*.deb",
    ),
    "dnf": (
        "sudo dnf install rpm-build make check check-devel dkms",
        f"{_CLONE} && cd gdrcopy/packages && CUDA=/usr/local/cuda ./build-rpm-packages.sh",
        "sudo rpm -Uvh gdrcopy-kmod-*dkms*.rpm gdrcopy-[0-9]*.rpm",
    ),
}


@check("gdrcopy", "GDRCopy", goals=[Goal.GPUNETIO], sides=("host",))
def gdrcopy(case: Case) -> Iterator[Finding]:
    """Can the CPU read and write GPU memory without CUDA? DOCA_GPU_MEM_TYPE_GPU_CPU needs it."""
    machine = case.machine
    empty = nothing(case)
    if empty is not None:
        yield empty
        return
    if not any(gpudirect.kind(machine, gpu).direct for gpu in gpus.usable(machine)):
        yield finding.n_a("not on this machine: see gpudirect-platform")
        return
    module, library = _module(machine), _library(machine)
    lacks = [name for name, there in (("gdrdrv", module), ("libgdrapi", library)) if there is False]
    needed = "module gdrdrv, libgdrapi"
    why = "Optional: memory of the type DOCA_GPU_MEM_TYPE_GPU_CPU alone needs it."
    if lacks and not (module or library):
        remedy = list(_PACKAGES[machine.know(family)])
        yield finding.n_a("not installed, and optional", why=why, remedy=remedy)
    elif lacks:
        remedy, found = _remedy(machine, lacks), f"no {lacks[0]}"
        yield finding.warn(found, needed=needed, why=why, remedy=remedy, sources=_SOURCES)
    elif module and library:
        yield finding.ok("module and library", needed=needed, sources=_SOURCES)
    else:
        what = "the library is looked for by a probe" if module else "/proc/modules says nothing"
        why = f"Only a part was seen: {what}."
        ask = ["lsmod | grep gdrdrv", "ldconfig -p | grep libgdrapi"]
        yield finding.unknown("?", needed=needed, why=why, remedy=ask, sources=_SOURCES)


def _module(machine: Machine) -> bool | None:
    known, files = machine.know(nvidia_proc.modules), machine.read.names("/dev")
    if "gdrdrv" in files.names or (known is not None and "gdrdrv" in known):
        return True
    return None if known is None else False


def _library(machine: Machine) -> bool | None:
    """Where GDRCOPY_PATH_L says, as DOCA does, then by the loader."""
    environ = machine.read.ask("environ").data
    folder = environ.get("GDRCOPY_PATH_L") if isinstance(environ, dict) else None
    if folder and any(
        name.startswith("libgdrapi.so") for name in machine.read.names(str(folder)).names
    ):
        return True
    answer = machine.read.probe("libraries").data
    found = answer.get("libgdrapi.so.2") if isinstance(answer, dict) else None
    return bool(found.get("path")) if isinstance(found, dict) else None


def _remedy(machine: Machine, lacks: list[str]) -> list[str]:
    """Where one of the two is there, built or installed."""
    packages = _PACKAGES[machine.know(family)]
    if lacks == ["gdrdrv"]:
        start = "echo gdrdrv | sudo tee /etc/modules-load.d/gdrdrv.conf  # at each start, too"
        built = "# where modprobe finds none, it was built by hand: install the packages instead"
        return ["sudo modprobe gdrdrv", start, built, *packages]
    environ = machine.read.ask("environ").data
    named = isinstance(environ, dict) and environ.get("GDRCOPY_PATH_L")
    path = ["# or, where it was built by hand: export GDRCOPY_PATH_L=.../gdrcopy/src"]
    return [*packages, *([] if named else path)]
