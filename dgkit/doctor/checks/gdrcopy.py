# SPDX-License-Identifier: Apache-2.0
"""GDRCopy: access to GPU memory by the CPU."""

from __future__ import annotations

from .. import finding, references
from ..facts import nvidia_proc
from ..facts.distribution import family
from ..facts.virtual import container
from ..finding import Finding
from ..goals import Goal
from ..machine import Case, Machine
from ..prerequisites import driver_loaded, gpu_present, gpudirect_possible
from ..registry import check

_SOURCES = (references.GPUNETIO("GDRCopy Installation"), references.GDRCOPY("README"))
_CLONE = "git clone https://github.com/NVIDIA/gdrcopy.git"
_DEB = "build-essential devscripts debhelper check libsubunit-dev fakeroot pkg-config dkms"
# Packages, whose module is built by DKMS and loaded at boot; the module of insmod.sh is not.
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


@check(
    "gdrcopy",
    "GDRCopy",
    asks="Can the CPU access GPU memory without CUDA? DOCA_GPU_MEM_TYPE_GPU_CPU needs it.",
    goals=[Goal.GPUNETIO],
    sides=("host",),
    sources=_SOURCES,
    needed="module gdrdrv, libgdrapi",
    requires=[gpu_present, driver_loaded, gpudirect_possible],
)
def _gdrcopy(case: Case) -> Finding:
    machine = case.machine
    module, library = _is_module_loaded(machine), _library(machine)
    if module and _lacks_node(machine):
        if machine.know(container).engine:
            do = ["# Start the container with --device=/dev/gdrdrv"]
        else:
            make = (
                "sudo mknod -m 666 /dev/gdrdrv c $(awk '$2==\"gdrdrv\"{print $1}' /proc/devices) 0"
            )
            do = [make]
        why = "The module is loaded, but programs open /dev/gdrdrv, which is missing."
        return finding.warn("no /dev/gdrdrv", needed="module, device file", why=why, remedy=do)
    parts = (("gdrdrv", module), ("libgdrapi", library))
    lacks = [name for name, found in parts if found is False]
    why = "Optional: only memory of the type DOCA_GPU_MEM_TYPE_GPU_CPU needs it."
    if lacks and not (module or library):
        remedy = list(_PACKAGES[machine.know(family)])
        return finding.n_a("not installed, and optional", why=why, remedy=remedy)
    if lacks:
        remedy, found = _remedy(machine, lacks), f"no {lacks[0]}"
        return finding.warn(found, why=why, remedy=remedy)
    if module and library:
        return finding.ok("module and library")
    why = (
        "Whether libgdrapi is installed is not known: the probe gave no answer."
        if module
        else "Whether gdrdrv is loaded is not known: /proc/modules was not read."
    )
    ask = ["lsmod | grep gdrdrv", "ldconfig -p | grep libgdrapi"]
    return finding.unknown("?", why=why, remedy=ask)


def _lacks_node(machine: Machine) -> bool:
    """Return whether /dev was read and has no gdrdrv, although the module is loaded."""
    listing, loaded = machine.read.names("/dev"), machine.know(nvidia_proc.modules)
    return listing.ok and "gdrdrv" not in listing.names and "gdrdrv" in (loaded or {})


def _is_module_loaded(machine: Machine) -> bool | None:
    known, files = machine.know(nvidia_proc.modules), machine.read.names("/dev")
    if "gdrdrv" in files.names or (known is not None and "gdrdrv" in known):
        return True
    return None if known is None else False


def _library(machine: Machine) -> bool | None:
    """Return whether the library is in GDRCOPY_PATH_L, which DOCA uses, or known to the loader."""
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
    """Return the remedy if only the module or only the library is missing."""
    packages = _PACKAGES[machine.know(family)]
    if lacks == ["gdrdrv"]:
        start = "echo gdrdrv | sudo tee /etc/modules-load.d/gdrdrv.conf  # load it at boot"
        built = "# if modprobe does not find it, it was built by hand: install the packages instead"
        return ["sudo modprobe gdrdrv", start, built, *packages]
    environ = machine.read.ask("environ").data
    is_set = isinstance(environ, dict) and environ.get("GDRCOPY_PATH_L")
    path = ["# or, if it was built by hand: export GDRCOPY_PATH_L=.../gdrcopy/src"]
    return [*packages, *([] if is_set else path)]
