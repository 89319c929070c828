"""The PCI devices of a machine and how they hang together, from sysfs."""

from __future__ import annotations

import msgspec

from ..machine import Machine

__all__ = ["BLUEFIELD", "PciDevice", "PciTree", "tree"]

_DEVICES = "/sys/bus/pci/devices"
NVIDIA, MELLANOX = 0x10DE, 0x15B3
# Device numbers of vendor 15b3, as the PCI ID list has them: the DPU's network functions.
BLUEFIELD = {0xA2D2: "BlueField", 0xA2D6: "BlueField-2", 0xA2DC: "BlueField-3"}


class PciDevice(msgspec.Struct, frozen=True):
    """`path`: from the host bridge (`pci0000:b0`) down to the device's own address.

    `kind` is the class code without its last byte: 0x0302 is a 3D controller. `numa` is -1 where
    the system does not tell.
    """

    address: str
    path: tuple[str, ...]
    vendor: int
    device: int
    kind: int
    driver: str = ""
    numa: int = -1

    @property
    def is_gpu(self) -> bool:
        """NVIDIA's display and 3D controllers."""
        return self.vendor == NVIDIA and self.kind >> 8 == 0x03

    @property
    def is_nic(self) -> bool:
        """Any network controller: Ethernet, InfiniBand, others."""
        return self.kind >> 8 == 0x02

    @property
    def is_bridge(self) -> bool:
        """PCI-to-PCI: root ports and the ports of switches."""
        return self.kind == 0x0604

    @property
    def bluefield(self) -> str:
        """The generation, "" if it is no network function of a BlueField."""
        return BLUEFIELD.get(self.device, "") if self.vendor == MELLANOX and self.is_nic else ""


class PciTree(msgspec.Struct, frozen=True):
    """All devices by address. `why`: why there are none to be told of, "" if there are."""

    devices: dict[str, PciDevice]
    why: str = ""

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """NVIDIA's, by address."""
        return tuple(one for one in self.devices.values() if one.is_gpu)

    @property
    def nics(self) -> tuple[PciDevice, ...]:
        """Of all vendors, by address."""
        return tuple(one for one in self.devices.values() if one.is_nic)

    @property
    def bluefields(self) -> tuple[PciDevice, ...]:
        """The network functions of BlueFields, by address."""
        return tuple(one for one in self.devices.values() if one.bluefield)


def tree(machine: Machine) -> PciTree:
    """Reads it."""
    listing = machine.read.names(_DEVICES)
    if not listing.ok:
        return PciTree({}, listing.why)
    files = [f"text {_DEVICES}/{name}/{file}" for name in listing.names for file in _FILES]
    machine.read.together([f"link {_DEVICES}/{name}" for name in listing.names] + files)
    found = (_device(machine, name) for name in listing.names)
    return PciTree({one.address: one for one in found if one is not None})


_FILES = ("uevent", "numa_node")


def _device(machine: Machine, address: str) -> PciDevice | None:
    folder = f"{_DEVICES}/{address}"
    link, numa = machine.read.link(folder), machine.read.text(f"{folder}/numa_node")
    uevent = machine.read.text(f"{folder}/uevent").text
    said = dict(line.split("=", 1) for line in uevent.splitlines() if "=" in line)
    vendor, _, device = said.get("PCI_ID", "").partition(":")
    try:
        return PciDevice(
            address=address,
            path=tuple(part for part in link.text.split("/")[3:] if ":" in part) or (address,),
            vendor=int(vendor, 16),
            device=int(device, 16),
            kind=int(said.get("PCI_CLASS", "0"), 16) >> 8,
            driver=said.get("DRIVER", ""),
            numa=int(numa.text) if numa.ok else -1,
        )
    except ValueError:
        return None
