# SPDX-License-Identifier: Apache-2.0
"""Readings of a host, from its tree, driver, system and the firmware of its cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from doctor.synthetic_machines import network, nvidia, probes, sysfs, system
from doctor.synthetic_machines.kinds import KINDS, Kind
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.system import System
from doctor.synthetic_machines.tree import Node, nodes


@dataclass(frozen=True)
class Host:
    """Description of a host.

    Attributes:
        tree: PCIe tree (see `tree`).
        driver: NVIDIA driver; None without one.
        root: The readings are those of root.
        firmware: Current mlxconfig settings, by the address of the card's first function.
        later: Settings after the next power cycle.
        doca: DOCA release, "" for none.
        dmabuf: Whether CUDA exports dma-bufs; None: by the driver.
        rshim: Mode reported by the rshim driver, "" without rshim.
        tools: mlxconfig is installed.
        more: Further readings, by key.
        kinds: Devices that the tree names.
    """

    tree: str
    driver: Driver | None = field(default_factory=Driver)
    system: System = field(default_factory=System)
    root: bool = True
    iommu: str = ""
    firmware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    later: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    doca: str = "3.2.1025"
    verbs: str = "1.14.56.0"
    dmabuf: bool | None = None
    rshim: str = ""
    tools: bool = True
    more: Mapping[str, object] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=lambda: KINDS)


def readings(host: Host) -> dict[str, object]:
    """Return all readings of a host."""
    tree = nodes(host.tree, host.kinds)
    loaded = nvidia.modules(host.driver) if host.driver else []
    made = {
        **sysfs.pci(tree, root=host.root, iommu=host.iommu),
        **sysfs.nodes_of_system(tree),
        **system.system(host.system, loaded),
        **network.network(tree),
        **_cards(host, tree),
        **probes.probes(host, tree),
    }
    if host.driver:
        made |= nvidia.driver(host.driver, tree)
    if host.rshim:
        card = next(node for node in tree if node.kind.device in (0xA2D6, 0xA2DC))
        made |= network.rshim(made, card, host.rshim)
    return {**made, **host.more}


def _cards(host: Host, tree: Sequence[Node]) -> dict[str, object]:
    made: dict[str, object] = {}
    for node in tree if host.tools else ():
        if node.kind.rdma is None or node.kind.vendor != 0x15B3 or not node.slot.endswith(".0"):
            continue
        if host.root:
            now = host.firmware.get(node.address, {})
            made |= network.settings(node, now, host.later.get(node.address, now))
        else:
            made |= network.denied(node)
    return made
