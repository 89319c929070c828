"""ConnectX-8's Data Direct functions: each shares a switch with a GPU, where ACS is to be set so.

After rdma-core, kernel-boot/rdma_topo (NVCX_DMA_Complex), which NVIDIA has for Grace machines:
root port, switch, and below that the Data Direct function, and by one more switch the GPU.
"""

from __future__ import annotations

import msgspec

from ..machine import Machine
from . import pci
from .pci import PciDevice, PciTree
from .pci_ids import DATA_DIRECT, MELLANOX, NVIDIA

__all__ = ["Place", "functions", "is_function", "masks", "places"]

_ROOT_PORTS = frozenset({(NVIDIA, 0x22B1), (NVIDIA, 0x22B2), (NVIDIA, 0x22B8)})  # Grace
_SWITCHES = frozenset({(MELLANOX, 0x197B), (MELLANOX, 0x197C)})  # BlueField-3's, ConnectX's
_USUAL = {"SrcValid": True, "ReqRedir": True, "CmpltRedir": True, "UpstreamFwd": True}


class Place(msgspec.Struct, frozen=True):
    """A function and its GPU, by address, and the ports whose ACS differs from the usual."""

    function: str
    gpu: str
    root_port: str
    function_port: str
    gpu_port: str


def is_function(device: PciDevice) -> bool:
    """Whether it is one: data alone, no NIC of its own."""
    return (device.vendor, device.device) == (MELLANOX, DATA_DIRECT)


def functions(machine: Machine) -> tuple[PciDevice, ...]:
    """All of them; () on a machine without."""
    return tuple(one for one in machine.know(pci.tree).devices.values() if is_function(one))


def places(machine: Machine) -> tuple[Place, ...] | None:
    """Where each is; None if one is in a place that rdma_topo's rules are not about."""
    tree = machine.know(pci.tree)
    found = [_place(tree, one) for one in functions(machine)]
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(found) else None


def _place(tree: PciTree, function: PciDevice) -> Place | None:
    if len(function.path) != 5:
        return None
    root, switch, port = function.path[1:4]
    near = [gpu for gpu in tree.gpus if gpu.path[:2] == function.path[:2]]
    if len(near) != 1 or len(near[0].path) != 7 or near[0].path[2] != switch:
        return None
    inner = near[0].path[2:6]
    if _ids(tree, root) not in _ROOT_PORTS or port in inner:
        return None
    if any(_ids(tree, one) not in _SWITCHES for one in (port, *inner)):
        return None
    return Place(function.address, near[0].address, root, port, inner[1])


def _ids(tree: PciTree, address: str) -> tuple[int, int]:
    known = tree.devices.get(address)
    return (known.vendor, known.device) if known is not None else (0, 0)


def masks(machine: Machine, known: tuple[Place, ...]) -> dict[str, dict[str, bool]]:
    """The bits of ACS that are to be on or off, for each port of Grace and of these switches.

    All but three in each place have what Linux sets; the root port's SrcValid is off so that the
    kernel makes one IOMMU group of all below it.
    """
    devices = machine.know(pci.tree).devices.values()
    ports = _ROOT_PORTS | _SWITCHES
    found = {one.address: dict(_USUAL) for one in devices if (one.vendor, one.device) in ports}
    for place in known:
        found[place.function_port]["ReqRedir"] = False
        found[place.gpu_port]["CmpltRedir"] = False
        found[place.root_port]["SrcValid"] = False
    return found
