"""The kernel and the processor, as uname has them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ..machine import Machine

__all__ = ["Uname", "uname"]

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


class Uname(msgspec.Struct, frozen=True):
    """`release`: `6.8.0-51-generic`; `machine`: `x86_64`. "" where it is not known; `why` then."""

    release: str = ""
    machine: str = ""
    why: str = ""

    @property
    def version(self) -> tuple[int, ...]:
        """(6, 8) of 6.8.0-51-generic; () where it is not known."""
        match = _VERSION.match(self.release)
        return (int(match[1]), int(match[2])) if match else ()

    @property
    def arm(self) -> bool:
        """Whether this is a 64-bit Arm."""
        return self.machine == "aarch64"

    @property
    def wsl(self) -> bool:
        """Whether the kernel is Microsoft's, of WSL 2."""
        return "microsoft" in self.release.lower()


def uname(machine: Machine) -> Uname:
    """Reads it."""
    reading = machine.read.ask("uname")
    said = reading.data if isinstance(reading.data, Mapping) else {}
    return Uname(str(said.get("release", "")), str(said.get("machine", "")), reading.why)
