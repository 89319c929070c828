# SPDX-License-Identifier: Apache-2.0
"""PCIe links from sysfs: current and maximum speed and width."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from ..machine import Machine
from .pci import DEVICES
from .topology import Path

_FILES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
# By speed in GT/s: the generation and the efficiency of the line code, which is 8b/10b up to
# PCIe 2, 128b/130b up to PCIe 5, and flits from PCIe 6 (Linux, drivers/pci/pci.h,
# PCIE_SPEED2MBS_ENC).
_SPEEDS = {
    2.5: (1, 8 / 10),
    5.0: (2, 8 / 10),
    8.0: (3, 128 / 130),
    16.0: (4, 128 / 130),
    32.0: (5, 128 / 130),
    64.0: (6, 1.0),
    128.0: (7, 1.0),
}


def generation(speed: float) -> int:
    """Return the PCIe generation of a speed in GT/s; 0 for an unknown speed."""
    return _SPEEDS.get(speed, (0, 0.0))[0]


def gigabytes(speed: float, lanes: int) -> float:
    """Return the rate of a link in GB/s per direction, including headers; 0 if unknown."""
    return speed * lanes / 8 * _SPEEDS.get(speed, (0, 0.0))[1]


class PcieLink(msgspec.Struct, frozen=True):
    """The link above a device: speeds in GT/s, widths in lanes; 0 if unknown."""

    address: str
    speed: float = 0
    lanes: int = 0
    max_speed: float = 0
    max_lanes: int = 0

    @property
    def known(self) -> bool:
        """True if all four values are known."""
        return min(self.speed, self.lanes, self.max_speed, self.max_lanes) > 0

    @property
    def rate(self) -> float:
        """Current rate in GB/s per direction."""
        return gigabytes(self.speed, self.lanes)

    @property
    def max_rate(self) -> float:
        """Maximum rate in GB/s per direction."""
        return gigabytes(self.max_speed, self.max_lanes)

    @property
    def speeds(self) -> tuple[str, str]:
        """Current and maximum generation: `PCIe 1`, `PCIe 5`."""
        return _generation_text(self.speed), _generation_text(self.max_speed)

    @property
    def text(self) -> str:
        """Current speed, width and rate: `PCIe 4 x16, 31.5 GB/s`."""
        return _link_text(self.speed, self.lanes)

    @property
    def max_text(self) -> str:
        """Maximum speed, width and rate."""
        return _link_text(self.max_speed, self.max_lanes)


def _generation_text(speed: float) -> str:
    return f"PCIe {generation(speed)}" if generation(speed) else f"{speed:g} GT/s"


def _link_text(speed: float, lanes: int) -> str:
    return f"{_generation_text(speed)} x{lanes}, {gigabytes(speed, lanes):.1f} GB/s"


def _speed(text: str) -> float:
    """Parse `16.0 GT/s PCIe`, or `8 GT/s` of kernels before 5.7; 0 for `Unknown`."""
    match = re.match(r"\s*([0-9]{1,3}(?:\.[0-9])?) ?GT/s", text)
    return float(match[1]) if match else 0.0


def _lanes(text: str) -> int:
    """Parse `16`; 0 if malformed, and for 63 and 255, which a removed device returns."""
    match = re.fullmatch(r"\s*x?([0-9]{1,3})\s*", text)
    return int(match[1]) if match and int(match[1]) <= 32 else 0


def links(machine: Machine, addresses: Collection[str]) -> dict[str, PcieLink]:
    """Return the links of these devices, by address."""
    machine.read.together(
        [f"text {DEVICES}/{address}/{file}" for address in addresses for file in _FILES]
    )
    return {address: _read_link(machine, address) for address in addresses}


def _read_link(machine: Machine, address: str) -> PcieLink:
    speed, lanes, max_speed, max_lanes = (
        machine.read.text(f"{DEVICES}/{address}/{file}").text for file in _FILES
    )
    return PcieLink(address, _speed(speed), _lanes(lanes), _speed(max_speed), _lanes(max_lanes))


def traversed(path: Path) -> tuple[str, ...]:
    """Return the devices whose links a path traverses: both ends, and switches on one side only."""
    between = tuple(switch for switch in path.switches if switch not in path.common)
    return (path.a, *between, path.b)
