"""PCIe links as sysfs tells them: how fast and how wide, now and at most."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from ..machine import Machine
from .pci import DEVICES
from .topology import Path

__all__ = ["PcieLink", "generation", "gigabytes", "links", "passed"]

_FILES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
# GT/s: the generation, and the share of the bits on the wire that is payload. 8b/10b up to PCIe 2,
# 128b/130b up to PCIe 5, whole flits from PCIe 6 on (Linux, drivers/pci/pci.h, PCIE_SPEED2MBS_ENC).
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
    """Of PCIe, by its GT/s; 0 for a speed that it has not."""
    return _SPEEDS.get(speed, (0, 0.0))[0]


def gigabytes(speed: float, lanes: int) -> float:
    """What a link carries each way in GB/s, before headers: 0 for a speed that PCIe has not."""
    return speed * lanes / 8 * _SPEEDS.get(speed, (0, 0.0))[1]


class PcieLink(msgspec.Struct, frozen=True):
    """The link above a device; speeds in GT/s; 0 is what is not told."""

    address: str
    speed: float = 0
    lanes: int = 0
    most_speed: float = 0
    most_lanes: int = 0

    @property
    def known(self) -> bool:
        """Whether all four are told."""
        return min(self.speed, self.lanes, self.most_speed, self.most_lanes) > 0

    @property
    def rate(self) -> float:
        """Now, in GB/s each way."""
        return gigabytes(self.speed, self.lanes)

    @property
    def most_rate(self) -> float:
        """At most, in GB/s each way."""
        return gigabytes(self.most_speed, self.most_lanes)

    @property
    def speeds(self) -> tuple[str, str]:
        """Now and at most, without the lanes: `PCIe 1`, `PCIe 5`."""
        return _name(self.speed), _name(self.most_speed)

    @property
    def now(self) -> str:
        """For people: `PCIe 4 x16, 31.5 GB/s`."""
        return _words(self.speed, self.lanes)

    @property
    def most(self) -> str:
        """At most, for people."""
        return _words(self.most_speed, self.most_lanes)


def _name(speed: float) -> str:
    return f"PCIe {generation(speed)}" if generation(speed) else f"{speed:g} GT/s"


def _words(speed: float, lanes: int) -> str:
    return f"{_name(speed)} x{lanes}, {gigabytes(speed, lanes):.1f} GB/s"


def _speed(text: str) -> float:
    """Of `16.0 GT/s PCIe`, and `8 GT/s` of kernels before 5.7; 0 for `Unknown`."""
    match = re.match(r"\s*([0-9]{1,3}(?:\.[0-9])?) ?GT/s", text)
    return float(match[1]) if match else 0.0


def _lanes(text: str) -> int:
    """Of `16`; 0 for none, and for 63 and 255, which is what a device that is gone says."""
    match = re.fullmatch(r"\s*x?([0-9]{1,3})\s*", text)
    return int(match[1]) if match and int(match[1]) <= 32 else 0


def links(machine: Machine, addresses: Collection[str]) -> dict[str, PcieLink]:
    """Of these devices."""
    looks = [f"text {DEVICES}/{one}/{file}" for one in addresses for file in _FILES]
    machine.read.together(looks)
    return {one: _link(machine, one) for one in addresses}


def _link(machine: Machine, address: str) -> PcieLink:
    now, width, most, widest = (
        machine.read.text(f"{DEVICES}/{address}/{file}").text for file in _FILES
    )
    return PcieLink(address, _speed(now), _lanes(width), _speed(most), _lanes(widest))


def passed(path: Path) -> tuple[str, ...]:
    """The devices whose links bytes pass: both ends, and the switches below what they share."""
    between = tuple(one for one in path.switches if one not in path.common)
    return (path.a, *between, path.b)
