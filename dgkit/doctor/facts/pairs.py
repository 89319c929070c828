"""Which GPU goes with which NIC or DPU: the pairs that are worth judging."""

from __future__ import annotations

from functools import partial

import msgspec

from ..goals import Goal
from ..machine import Machine
from . import gpus, lspci, pci, pci_ids, rdma, topology
from .data_direct import is_function
from .pci import PciDevice
from .topology import Path

__all__ = ["Pair", "label", "others", "pairs"]


def others(machine: Machine, goal: Goal) -> tuple[PciDevice, ...]:
    """The NICs and DPUs that could reach a GPU's memory, one function of each card.

    NVIDIA's, and other vendors' that are RDMA devices. For the Arm cores' own DMA the BlueFields
    alone count, where there are any. Virtual functions count with the card they are of, but where
    they are all there is (in a virtual machine).
    """
    tree = machine.know(pci.tree)
    able = {one.address for one in machine.know(rdma.devices).devices}
    found = [one for one in tree.nics if one.vendor == pci.MELLANOX or one.address in able]
    if goal is Goal.ARM_DMA and any(one.bluefield for one in found):
        found = [one for one in found if one.bluefield]
    found = [one for one in found if one.physfn not in tree.devices and not is_function(one)]
    cards: dict[tuple[str, ...], PciDevice] = {}
    for one in sorted(found, key=lambda one: one.address):
        cards.setdefault((*one.path[:-1], one.slot), one)
    return tuple(cards.values())


class Pair(msgspec.Struct, frozen=True):
    """A GPU and a NIC or DPU, and the path between them."""

    gpu: PciDevice
    other: PciDevice
    path: Path


def pairs(machine: Machine, goal: Goal) -> tuple[Pair, ...]:
    """Each GPU with its nearest NIC or DPU; for the Arm cores, each DPU with its nearest GPU too.

    Of several that are as near, the first that no other GPU has. Worked out once for a goal.
    """
    return machine.know(_PAIRS[goal])


def _pairs(machine: Machine, goal: Goal) -> tuple[Pair, ...]:
    tree, those = machine.know(pci.tree), others(machine, goal)
    if not those:
        return ()
    chosen: list[Pair] = []
    for gpu in tree.gpus:
        taken = {one.other.address for one in chosen}
        made = [
            Pair(gpu, other, topology.path(tree, gpu.address, other.address)) for other in those
        ]
        chosen.append(min(made, key=lambda one: (one.path.near, one.other.address in taken)))
    if goal is Goal.ARM_DMA and tree.gpus:
        taken = {one.other.address for one in chosen}
        chosen += [_nearest(machine, other) for other in those if other.address not in taken]
    return tuple(chosen)


_PAIRS = {goal: partial(_pairs, goal=goal) for goal in Goal}


def _nearest(machine: Machine, other: PciDevice) -> Pair:
    tree = machine.know(pci.tree)
    made = [Pair(gpu, other, topology.path(tree, gpu.address, other.address)) for gpu in tree.gpus]
    return min(made, key=lambda one: one.path.near)


def label(machine: Machine, device: PciDevice) -> str:
    """What findings call a device: `GPU 0 (0000:17:00.0)`, `ConnectX-7 0000:18:00.0`."""
    if device.is_gpu:
        found = (one.label for one in machine.know(gpus.gpus) if one.address == device.address)
        return next(found, device.address)
    name = pci_ids.known(device.vendor, device.device) or lspci.name(machine, device)
    return f"{name} {device.address}"
