# SPDX-License-Identifier: Apache-2.0
"""Kernel release and processor architecture from uname."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ..machine import Machine

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


class Uname(msgspec.Struct, frozen=True):
    """Kernel release (`6.8.0-51-generic`) and machine (`x86_64`); if "", `why` is the reason."""

    release: str = ""
    machine: str = ""
    why: str = ""

    @property
    def version(self) -> tuple[int, ...]:
        """Kernel version, such as (6, 8) for 6.8.0-51-generic; () if unknown."""
        match = _VERSION.match(self.release)
        return (int(match[1]), int(match[2])) if match else ()

    @property
    def arm(self) -> bool:
        """True if the processor is a 64-bit Arm."""
        return self.machine == "aarch64"

    @property
    def wsl(self) -> bool:
        """True if the kernel is Microsoft's kernel for WSL 2."""
        return "microsoft" in self.release.lower()


def uname(machine: Machine) -> Uname:
    """Read uname."""
    reading = machine.read.ask("uname")
    fields = reading.data if isinstance(reading.data, Mapping) else {}
    return Uname(str(fields.get("release", "")), str(fields.get("machine", "")), reading.why)
