# SPDX-License-Identifier: Apache-2.0
"""Pairs of a GPU and a NIC or DPU that the checks judge."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import msgspec

from ..goals import BY_ARM, Goal
from ..machine import Machine
from . import gpus, lspci, pci, pci_ids, rdma, topology
from .data_direct import is_function
from .pci import PciDevice, PciTree
from .topology import Path


def peers(machine: Machine, goal: Goal) -> tuple[PciDevice, ...]:
    """Return the devices that could access the goal's memory, one function per card.

    These are NICs and DPUs: NVIDIA's and, except for GPUNetIO, RDMA devices of other vendors. For
    DMA by Arm cores, they are only the BlueFields, if there are any. For access between GPUs, they
    are the GPUs; for a GPU alone, none. Virtual functions belong to their card; they are returned
    only if the physical function is not visible, as in a virtual machine.
    """
    tree = machine.know(pci.tree)
    if goal is Goal.GPU:
        return ()
    if goal is Goal.P2P:
        return tree.gpus if len(tree.gpus) > 1 else ()
    others = machine.know(rdma.devices).devices if goal is not Goal.GPUNETIO else ()
    rdma_capable = {device.address for device in others}
    nics = [
        nic for nic in tree.nics if nic.vendor == pci_ids.MELLANOX or nic.address in rdma_capable
    ]
    if goal in BY_ARM and any(nic.bluefield for nic in nics):
        nics = [nic for nic in nics if nic.bluefield]
    nics = [nic for nic in nics if nic.physfn not in tree.devices and not is_function(nic)]
    cards: dict[tuple[str, ...], PciDevice] = {}
    for nic in sorted(nics, key=lambda nic: nic.address):
        cards.setdefault((*nic.path[:-1], nic.slot), nic)
    return tuple(cards.values())


class Pair(msgspec.Struct, frozen=True):
    """A GPU, its peer (a NIC or DPU) and the path between them."""

    gpu: PciDevice
    peer: PciDevice
    path: Path


def pairs(machine: Machine, goal: Goal) -> tuple[Pair, ...]:
    """Return each GPU with its nearest peer; for Arm cores, also each DPU with its nearest GPU.

    Of several equally near peers, choose the first that is not paired with another GPU. The result
    is cached for each goal.
    """
    return machine.know(_PAIRS[goal])


def _find_pairs(machine: Machine, goal: Goal) -> tuple[Pair, ...]:
    tree, candidates = machine.know(pci.tree), peers(machine, goal)
    if not candidates or goal is Goal.HOST_DMA:
        return ()
    if goal is Goal.P2P:
        return tuple(_pair(tree, *both) for both in combinations(tree.gpus, 2))
    chosen: list[Pair] = []
    for gpu in tree.gpus:
        taken = {pair.peer.address for pair in chosen}
        possible = [_pair(tree, gpu, peer) for peer in candidates]
        chosen.append(min(possible, key=lambda pair: (pair.path.near, pair.peer.address in taken)))
    if goal is Goal.ARM_DMA and tree.gpus:
        taken = {pair.peer.address for pair in chosen}
        chosen += [_nearest(tree, peer) for peer in candidates if peer.address not in taken]
    return tuple(chosen)


_PAIRS = {goal: partial(_find_pairs, goal=goal) for goal in Goal}


def _pair(tree: PciTree, gpu: PciDevice, peer: PciDevice) -> Pair:
    return Pair(gpu, peer, topology.path(tree, gpu.address, peer.address))


def _nearest(tree: PciTree, peer: PciDevice) -> Pair:
    """Return the pair of a peer and its nearest GPU."""
    return min((_pair(tree, gpu, peer) for gpu in tree.gpus), key=lambda pair: pair.path.near)


def label(machine: Machine, device: PciDevice) -> str:
    """Return the name of a device in findings: `GPU 0 (0000:17:00.0)`."""
    if device.is_gpu:
        labels = (gpu.label for gpu in machine.know(gpus.gpus) if gpu.address == device.address)
        return next(labels, device.address)
    name = pci_ids.known(device.vendor, device.device) or lspci.name(machine, device)
    return f"{name} {device.address}"
