# SPDX-License-Identifier: Apache-2.0
"""ACS settings of PCI bridges, from sysfs or lspci."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..machine import Machine
from . import config_space, lspci, pci
from .config_space import Acs


class Bridge(msgspec.Struct, frozen=True):
    """A PCI bridge.

    Attributes:
        address: PCI address.
        acs: ACS capability; None if the bridge has none.
        why: Reason why ACS is unknown, "" if it is known.
    """

    address: str
    acs: Acs | None = None
    why: str = ""

    @property
    def on(self) -> tuple[str, ...]:
        """Names of the enabled ACS bits."""
        return () if self.acs is None else self.acs.on


def bridges(machine: Machine, addresses: Collection[str]) -> tuple[Bridge, ...]:
    """Return the bridges with these addresses, in the same order."""
    machine.read.together([f"raw {pci.DEVICES}/{address}/config" for address in addresses])
    return tuple(_bridge(machine, address) for address in addresses)


def _bridge(machine: Machine, address: str) -> Bridge:
    """Read a bridge from sysfs, or from lspci, which reads the same file, if sysfs is missing."""
    reading = machine.read.raw(f"{pci.DEVICES}/{address}/config")
    if reading.ok and config_space.has_extended(reading.raw):
        return Bridge(address, config_space.acs(reading.raw))
    if reading.ok:
        return Bridge(address, why="Only root may read more than 64 bytes of config space")
    details = machine.know(_lspci).get(address)
    if details is None or details.denied:
        return Bridge(address, why=f"It cannot be read without root: {reading.why}")
    return Bridge(address, details.acs)


def _lspci(machine: Machine) -> dict[str, lspci.Details]:
    return lspci.details(machine.read.run("lspci", "-D", "-vvv").text)
