"""What ACS does on bridges: by sysfs, or by lspci."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..machine import Machine
from . import config_space, lspci, pci
from .config_space import Acs

__all__ = ["Bridge", "bridges"]


class Bridge(msgspec.Struct, frozen=True):
    """`acs`: None for a bridge without. `why`: why it cannot be told, "" if it can."""

    address: str
    acs: Acs | None = None
    why: str = ""

    @property
    def on(self) -> tuple[str, ...]:
        """The bits that are switched on."""
        return () if self.acs is None else self.acs.on


def bridges(machine: Machine, addresses: Collection[str]) -> tuple[Bridge, ...]:
    """These, in their order."""
    machine.read.together([f"raw {pci.DEVICES}/{one}/config" for one in addresses])
    return tuple(_bridge(machine, one) for one in addresses)


def _bridge(machine: Machine, address: str) -> Bridge:
    """By sysfs; by lspci only where sysfs has nothing, since it reads the same file."""
    reading = machine.read.raw(f"{pci.DEVICES}/{address}/config")
    if reading.ok and config_space.whole(reading.raw):
        return Bridge(address, config_space.acs(reading.raw))
    if reading.ok:
        return Bridge(address, why="Only root may read more than 64 bytes of config space")
    known = machine.know(_lspci).get(address)
    if known is None or known.denied:
        return Bridge(address, why=f"Without root there is no telling: {reading.why}")
    return Bridge(address, known.acs)


def _lspci(machine: Machine) -> dict[str, lspci.Details]:
    return lspci.details(machine.read.run("lspci", "-D", "-vvv").text)
