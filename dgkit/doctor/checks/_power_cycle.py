"""Commands of the power cycle after which a card's new firmware or settings take effect."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .. import references
from ..remedies import OFF_AND_ON

__all__ = ["RESETS", "RESETS_DISAGREE", "SettingsAccess", "power_cycle"]

RESETS = references.RESETS("BlueField System-level Reset")
RESETS_DISAGREE = (
    "The GPUNetIO guide cuts the host's power (ipmitool power cycle); NVIDIA's reset and reboot "
    "procedures shut the Arm cores down first, and then a warm reboot of the host suffices."
)


class SettingsAccess(msgspec.Struct, frozen=True):
    """Side on which a card's settings can be changed.

    Attributes:
        on_arm: Whether the judged machine is the card's Arm side.
        arm_address: The card's PCI address on the Arm side, if the host may not change its settings
            (zero trust); "" if it may.
    """

    on_arm: bool = False
    arm_address: str = ""

    def command(self, command: Callable[[str], str], address: str) -> str:
        """Return the command for a card; a comment if it has to run on the other side."""
        if self.arm_address:
            return f"# zero trust: on the Arm side: {command(self.arm_address)}"
        return command(address)


_CUT = "(sudo ipmitool power cycle cuts it at once, without a shutdown)"


def power_cycle(address: str, access: SettingsAccess, *, arm_running: bool) -> list[str]:
    """Return the commands of an orderly power cycle, for the host.

    Args:
        address: PCI address of the card.
        access: Side on which its settings are changed.
        arm_running: Whether Arm cores may be running.
    """
    if access.on_arm:
        return [f"# then shut these Arm cores down (sudo shutdown -h now), and {OFF_AND_ON}"]
    off_and_on = f"# then {OFF_AND_ON} {_CUT}"
    if not arm_running:
        return [off_and_on]
    if access.arm_address:
        return ["# on the Arm side: sudo shutdown -h now", off_and_on]
    return [
        "# shut the Arm cores down, and wait until they are off:",
        f"sudo mlxfwreset -d {address} --yes -l 1 -t 4 r",
        off_and_on,
    ]
