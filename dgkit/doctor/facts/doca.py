# SPDX-License-Identifier: Apache-2.0
"""Installed DOCA release and libraries."""

from __future__ import annotations

import re

import msgspec

from ..collect.reader import Reading
from ..machine import Machine
from . import versions
from .versions import Version


class Ofed(msgspec.Struct, frozen=True):
    """Readings: `info` of `ofed_info -s`, `module` of the version of the module mlx5_core."""

    info: Reading
    module: Reading

    @property
    def installed(self) -> bool:
        """True if ofed_info exists and works."""
        return self.info.ok and self.info.code == 0

    @property
    def release(self) -> Version | None:
        """Installed release; None if there is none."""
        return versions.ofed(self.info.text)

    @property
    def driver(self) -> Version | None:
        """Release of the running driver; None if the driver is the mainline kernel's."""
        return versions.driver(self.module.text)


def ofed(machine: Machine) -> Ofed:
    """Read the installed release and the version of the running driver."""
    return Ofed(*machine.read.together(["run ofed_info -s", "text /sys/module/mlx5_core/version"]))


_ROOT = "/opt/mellanox/doca"
# Library directories of Debian and Ubuntu on x86 and on Arm, then of RHEL.
_LIBRARIES = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64")
_PART = re.compile(r"(?:doca-(?=.*\.pc)|libdoca_(?=.*\.so))(\w+)\.(?:pc|so[\d.]*)")


class Release(msgspec.Struct, frozen=True):
    """Image of a BlueField's Arm side, from /etc/mlnx-release."""

    text: str = ""
    doca: Version | None = None
    bsp: Version | None = None


class Doca(msgspec.Struct, frozen=True):
    """DOCA installation.

    Attributes:
        version: None if DOCA is not installed or its version is unknown.
        source: File from which the version was taken.
        parts: Installed libraries, named as in pkg-config files and library names: common, dma,
            gpunetio.
        device: Whether the static library for GPU code is installed.
        release: Image of the Arm side.
        why: Reason why the version or the parts are unknown.
    """

    version: Version | None = None
    source: str = ""
    parts: frozenset[str] = frozenset()
    device: bool = False
    release: Release = Release()
    why: str = ""


def release(text: str) -> Release:
    """Parse the text of /etc/mlnx-release.

    Examples: DOCA_2.2.1_BSP_4.2.2_Ubuntu_22.04-13.23-09.prod,
    bf-bundle-2.9.1-40_24.11-ubuntu-22.04.
    """
    line = text.strip().partition("\n")[0]
    match = re.search(r"(?:DOCA_v?|bf-bundle-)(\d{1,9}(?:\.\d{1,9})*)", line)
    bsp = re.search(r"BSP_(\d{1,9}(?:\.\d{1,9})*)", line)
    return Release(
        line,
        versions.find(match[1]) if match else None,
        versions.find(bsp[1]) if bsp else None,
    )


def doca(machine: Machine) -> Doca:
    """Search the installation directories of DOCA; softdoca is not DOCA."""
    installed, image, *listings = machine.read.together(
        [f"text {_ROOT}/applications/VERSION", "text /etc/mlnx-release"]
        + [f"names {_ROOT}/{folder}{sub}" for folder in _LIBRARIES for sub in ("", "/pkgconfig")]
    )
    names = {name for listing in listings for name in listing.names}
    found = release(image.text)
    version, source = _version(installed.text, names, found)
    readings = listings if version else [installed, *listings]
    faults = [reading.why for reading in readings if reading.fault not in ("", "absent")]
    return Doca(
        version=version,
        source=source,
        parts=frozenset(match[1] for name in names if (match := _PART.fullmatch(name))),
        device="libdoca_gpunetio_device.a" in names,
        release=found,
        why=next(iter(faults), ""),
    )


def _version(installed: str, names: set[str], image: Release) -> tuple[Version | None, str]:
    """Return version and source: the VERSION file, else a library name, else the image."""
    if found := versions.find(installed):
        return found, f"{_ROOT}/applications/VERSION"
    files = (name for name in names if name.startswith("libdoca_common.so."))
    real = max(files, key=len, default="")
    found = versions.library(real)
    if found is not None and len(found.parts) > 1:
        return found, real
    return (image.doca, "/etc/mlnx-release") if image.doca else (None, "")
