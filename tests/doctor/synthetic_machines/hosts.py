"""A host out of its parts: the tree, the driver, the system, the firmware of its cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from doctor.synthetic_machines import network, nvidia, probes, sysfs, system
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.system import System
from doctor.synthetic_machines.tree import Node, nodes


@dataclass(frozen=True)
class Host:
    """`driver`: None is none. `root`: who reads is root. `firmware`: what mlxconfig says, by the
    address of the card's first function. `doca`: the release, "" for none. `cuda`: whether libcuda
    answers. `dmabuf`: whether it gives GPU memory as a dma-buf, None is by the driver. `rshim`: the
    mode that the rshim driver shows, "" if it is not there. `tools`: whether mlxconfig is there.
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


def readings(host: Host) -> dict[str, object]:
    """All that it shows."""
    tree = nodes(host.tree)
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
        if node.kind.rdma is None or not node.slot.endswith(".0"):
            continue
        if host.root:
            now = host.firmware.get(node.address, {})
            made |= network.settings(node, now, host.later.get(node.address, now))
        else:
            made |= network.denied(node)
    return made
