"""MLNX_OFED or DOCA's drivers: what is installed, and the version of the driver that runs."""

from __future__ import annotations

import msgspec

from ..collect.reader import Reading
from ..machine import Machine
from . import versions
from .versions import Version

__all__ = ["Ofed", "ofed"]


class Ofed(msgspec.Struct, frozen=True):
    """`info`: reading of `ofed_info -s`; `module`: that of mlx5_core's version."""

    info: Reading
    module: Reading

    @property
    def installed(self) -> bool:
        """True if ofed_info is there and works."""
        return self.info.ok and self.info.code == 0

    @property
    def release(self) -> Version | None:
        """Release that is installed; None if there is none."""
        return versions.ofed(self.info.text)

    @property
    def driver(self) -> Version | None:
        """Release that the running driver is of; None if it is the kernel's own."""
        return versions.driver(self.module.text)


def ofed(machine: Machine) -> Ofed:
    """Read what is installed, and what runs."""
    return Ofed(*machine.read.together(["run ofed_info -s", "text /sys/module/mlx5_core/version"]))
