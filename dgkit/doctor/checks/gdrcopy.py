"""GDRCopy: GPU memory for the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, sources
from ..facts import gpudirect, gpus, nvidia_proc
from ..finding import Finding
from ..goals import Goal
from ..machine import Case, Machine
from ..registry import check
from .each import nothing

_SOURCES = (sources.GPUNETIO("GDRCopy Installation"), sources.GDRCOPY("README"))
_BUILD = (
    "git clone https://github.com/NVIDIA/gdrcopy.git && cd gdrcopy && make",
    "sudo make lib_install && sudo ./insmod.sh",
)


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
    if lacks:
        why = "Optional: without it no memory of the type DOCA_GPU_MEM_TYPE_GPU_CPU."
        remedy = _remedy(machine, lacks)
        found = f"no {' and no '.join(lacks)}"
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
    if lacks == ["gdrdrv"]:
        return ["sudo modprobe gdrdrv", "# or, where it was built: sudo ./insmod.sh"]
    environ = machine.read.ask("environ").data
    named = isinstance(environ, dict) and environ.get("GDRCOPY_PATH_L")
    path = ["export GDRCOPY_PATH_L=$PWD/src"] if not named else []
    return [*_BUILD, *path] if "gdrdrv" in lacks else [_BUILD[0], "sudo make lib_install", *path]
