"""MLNX_OFED or DOCA's drivers: the installed release, and the version of the running driver."""

from __future__ import annotations

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
