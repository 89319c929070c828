"""What makes a change of a card's firmware or settings take effect."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .. import references

__all__ = ["RESETS", "TWO_WAYS", "Where", "cycle"]

RESETS = references.RESETS("BlueField System-level Reset")
TWO_WAYS = (
    "The GPUNetIO guide cuts the host's power (ipmitool power cycle); NVIDIA's reset and reboot "
    "procedures shut the Arm cores down first, and then a warm reboot of the host will do."
)


class Where(msgspec.Struct, frozen=True):
    """Where a card's settings are changed: on the machine that is judged, or elsewhere.

    `arm`: that machine is the card's Arm side. `at`: the address that the Arm side knows the card
    by, where the host may change nothing (zero trust); "" where it may.
    """

    arm: bool = False
    at: str = ""

    def typed(self, line: Callable[[str], str], address: str) -> str:
        """The command, for this address; in words, if it is not typed on this machine."""
        return f"# zero trust: on the Arm side: {line(self.at)}" if self.at else line(address)


_SWITCH = "shut the host down, and switch its power off and on"
_CUT = "(sudo ipmitool power cycle cuts it at once, without a shutdown)"


def cycle(address: str, where: Where, *, running: bool) -> list[str]:
    """The orderly way through a power cycle, typed on the host. `running`: Arm cores may be."""
    if where.arm:
        return [f"# then shut these Arm cores down (sudo shutdown -h now), and {_SWITCH}"]
    then = f"# then {_SWITCH} {_CUT}"
    if not running:
        return [then]
    if where.at:
        return ["# on the Arm side: sudo shutdown -h now", then]
    return [
        "# shut the Arm cores down, and wait until they are off:",
        f"sudo mlxfwreset -d {address} --yes -l 1 -t 4 r",
        then,
    ]
