# SPDX-License-Identifier: Apache-2.0
"""Data Direct functions of ConnectX-8, and the ACS settings of the switch they share with a GPU.

The rules are those of rdma-core, kernel-boot/rdma_topo (NVCX_DMA_Complex), which NVIDIA provides
for Grace machines. The topology there: a root port; a switch; below the switch the Data Direct
function and, behind another switch, the GPU.
"""

from __future__ import annotations

import msgspec

from ..machine import Machine
from . import pci
from .pci import PciDevice, PciTree
from .pci_ids import DATA_DIRECT, MELLANOX, NVIDIA

_ROOT_PORTS = frozenset({(NVIDIA, 0x22B1), (NVIDIA, 0x22B2), (NVIDIA, 0x22B8)})  # Grace
_SWITCHES = frozenset({(MELLANOX, 0x197B), (MELLANOX, 0x197C)})  # BlueField-3's, ConnectX's
_DEFAULT_ACS = {"SrcValid": True, "ReqRedir": True, "CmpltRedir": True, "UpstreamFwd": True}


class Placement(msgspec.Struct, frozen=True):
    """Addresses of a function, of its GPU, and of the ports that need non-default settings."""

    function: str
    gpu: str
    root_port: str
    function_port: str
    gpu_port: str


def is_function(device: PciDevice) -> bool:
    """Return whether a device is a Data Direct function, which is not a NIC itself."""
    return (device.vendor, device.device) == (MELLANOX, DATA_DIRECT)


def functions(machine: Machine) -> tuple[PciDevice, ...]:
    """Return all Data Direct functions."""
    return tuple(
        device for device in machine.know(pci.tree).devices.values() if is_function(device)
    )


def placements(machine: Machine) -> tuple[Placement, ...] | None:
    """Return the placement of each function; None if rdma_topo cannot place one of them."""
    tree = machine.know(pci.tree)
    found = [_find_placement(tree, function) for function in functions(machine)]
    known = tuple(placement for placement in found if placement is not None)
    return known if len(known) == len(found) else None


def _find_placement(tree: PciTree, function: PciDevice) -> Placement | None:
    if len(function.path) != 5:
        return None
    root, switch, port = function.path[1:4]
    gpus = [gpu for gpu in tree.gpus if gpu.path[:2] == function.path[:2]]
    if len(gpus) != 1 or len(gpus[0].path) != 7 or gpus[0].path[2] != switch:
        return None
    inner = gpus[0].path[2:6]
    if _ids(tree, root) not in _ROOT_PORTS or port in inner:
        return None
    if any(_ids(tree, part) not in _SWITCHES for part in (port, *inner)):
        return None
    return Placement(function.address, gpus[0].address, root, port, inner[1])


def _ids(tree: PciTree, address: str) -> tuple[int, int]:
    device = tree.devices.get(address)
    return (device.vendor, device.device) if device is not None else (0, 0)


def acs_masks(machine: Machine, known: tuple[Placement, ...]) -> dict[str, dict[str, bool]]:
    """Return the required ACS bits of each Grace root port and of each port of these switches.

    In each placement, three ports need bits other than the Linux default. SrcValid of the root
    port is off, so that the kernel puts all devices below it into one IOMMU group.
    """
    devices = machine.know(pci.tree).devices.values()
    ports = _ROOT_PORTS | _SWITCHES
    masks = {
        device.address: dict(_DEFAULT_ACS)
        for device in devices
        if (device.vendor, device.device) in ports
    }
    for placement in known:
        masks[placement.function_port]["ReqRedir"] = False
        masks[placement.gpu_port]["CmpltRedir"] = False
        masks[placement.root_port]["SrcValid"] = False
    return masks
