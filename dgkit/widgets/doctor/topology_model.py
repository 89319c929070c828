# SPDX-License-Identifier: Apache-2.0
"""Model of a PCIe tree drawing: its nodes, the pairs to choose from, and the answer in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...doctor.diagnosis import Diagnosis
from ...doctor.facts import pci
from ...doctor.facts.gpus import Gpu, gpus
from ...doctor.facts.link import PcieLink, links
from ...doctor.facts.topology import Node, Path, drawing, one_bridge, path, route
from ...doctor.goals import BY_ARM
from ...doctor.machine import Machine
from .serialize import truncate

if TYPE_CHECKING:
    from ..base.page_input import Json

Pair = tuple[str, str]
_MAX_NAME = 120  # characters of a device's name
MAX_DEVICES = 64  # devices drawn: GPUs first, then DPUs, then NICs
_RANK = {"gpu": 0, "dpu": 1, "nic": 2}


@dataclass(frozen=True, slots=True)
class TopologyModel:
    """PCIe tree of one machine.

    Attributes:
        tree: The PCI devices.
        nodes: The nodes that are drawn.
        lines: Details of each node, by its id.
        short: Name of each node for a narrow box, by its id.
        dpus_first: Whether the goal is about pairs of a GPU and a DPU.
        left_out: Number of devices that are not drawn.
    """

    tree: pci.PciTree
    nodes: tuple[Node, ...]
    lines: dict[str, dict[str, str]]
    short: dict[str, str]
    dpus_first: bool = False
    left_out: int = 0

    def of(self, *kinds: str) -> list[Node]:
        """Return the nodes of these kinds."""
        return [node for node in self.nodes if node.kind in kinds]

    def has(self, pair: Pair | None) -> bool:
        """Return whether a pair is drawn: first a GPU, then a NIC or DPU."""
        first, second = ([node.id for node in self.of(*kinds)] for kinds in _ENDS)
        return pair is not None and pair[0] in first and pair[1] in second

    @property
    def nearest(self) -> Pair | None:
        """The pair to show first: the closest; among equals, one with a DPU."""
        pairs = [(gpu, nic) for gpu in self.of(*_ENDS[0]) for nic in self.of(*_ENDS[1])]
        if not pairs:
            return None
        gpu, nic = min(pairs, key=lambda pair: self._rank(*pair))
        return gpu.id, nic.id

    def _rank(self, gpu: Node, nic: Node) -> tuple[int, int]:
        kind, near = _RANK[nic.kind], self.path((gpu.id, nic.id)).near
        return (kind, near) if self.dpus_first else (near, kind)

    def path(self, pair: Pair) -> Path:
        """Return the path between two devices.

        Raises:
            ValueError: If they are not a GPU and a NIC or DPU that are drawn.
        """
        if not self.has(pair):
            raise ValueError(f"{pair[0]} and {pair[1]} are not a GPU and a NIC of this drawing")
        return path(self.tree, *pair)

    def route(self, pair: Pair) -> tuple[str, ...]:
        """Return the ids of the two devices and of the nodes between them."""
        return route(self.tree, self.path(pair))

    def title(self, pair: Pair | None) -> str:
        """Return the names of the two devices and their distance."""
        if pair is None:
            return "PCIe devices"
        near = self.path(pair).near
        return f"{self.short[pair[0]]} and {self.short[pair[1]]}: {near}, {near.text}"

    def alt(self, pair: Pair | None) -> str:
        """Return the alternative text of the drawing."""
        counts = ", ".join(_count(self.of(kind), kind.upper()) for kind in _RANK if self.of(kind))
        more = f" {self.left_out} more are not drawn." if self.left_out else ""
        text = f"PCIe tree with {counts or 'no GPU and no NIC'}.{more}"
        if pair is None:
            return text
        steps = " → ".join(self.lines[node]["name"] for node in self.route(pair))
        return f"{text} {self.title(pair)}. Path: {steps}."

    def as_dict(self, pair: Pair | None) -> Json:
        """Return what a view shows besides the drawing.

        Raises:
            ValueError: If the pair is not drawn.
        """
        choices = [
            [[node.id, self.lines[node.id]["name"]] for node in self.of(*kinds)] for kinds in _ENDS
        ]
        answer = _NO_PAIR if pair is None else one_bridge(self.path(pair))
        question = "" if pair is None else "Must they be under one PCIe bridge? "
        return {
            "gpus": choices[0], "nics": choices[1], "pair": pair,
            "near": "" if pair is None else str(self.path(pair).near),
            "title": self.title(pair), "answer": question + answer, "alt": self.alt(pair),
        }  # fmt: skip


def _count(nodes: list[Node], kind: str) -> str:
    """Return a count such as `1 DPU (2 ports)`: the functions of a card are its ports."""
    cards = len({node.id.rpartition(".")[0] for node in nodes})
    ports = f" ({len(nodes)} ports)" if len(nodes) > cards else ""
    return f"{cards} {kind}{'s' if cards > 1 else ''}{ports}"


_ENDS = (("gpu",), ("nic", "dpu"))
_NO_PAIR = (
    "The distance is that of a GPU and a NIC or DPU, and not both are visible here. The Arm cores "
    "of a DPU do not see the host's GPUs: judge the host, or both sides together."
)


def topology_model(of: Diagnosis | Machine) -> TopologyModel | None:
    """Return the model of the host if there is one, else of the machine.

    Returns:
        None if sysfs has neither GPU nor NIC.
    """
    machine = (of.case.host or of.case.machine) if isinstance(of, Diagnosis) else of
    tree = machine.know(pci.tree)
    nodes = drawing(tree)
    ends = [node for node in nodes if node.kind in _RANK]
    if not ends:
        return None
    drawn = sorted(ends, key=lambda node: _RANK[node.kind])[:MAX_DEVICES]
    kept = _with_ancestors(nodes, drawn)
    labels = {gpu.address: _gpu_label(gpu) for gpu in machine.know(gpus)}
    names = {node.id: truncate(labels.get(node.id) or node.label, _MAX_NAME) for node in kept}
    known = links(machine, [node.id for node in kept if node.id in tree.devices])
    lines = {
        node.id: _node_details(tree, node, names[node.id], known.get(node.id)) for node in kept
    }
    short = {node.id: _short_name(tree, node, names[node.id]) for node in kept}
    arm = isinstance(of, Diagnosis) and of.goal in BY_ARM
    return TopologyModel(tree, tuple(kept), lines, short, arm, len(ends) - len(drawn))


def _gpu_label(gpu: Gpu) -> str:
    """Return `GPU 0 (0000:1a:00.0), NVIDIA H100 PCIe`, "" if the driver does not know it."""
    if gpu.index is None:
        return f"{gpu.name} {gpu.address}" if gpu.name else ""
    return f"{gpu.label}, {gpu.name}" if gpu.name else gpu.label


def _with_ancestors(nodes: tuple[Node, ...], drawn: list[Node]) -> list[Node]:
    """Return the drawn nodes and all their ancestors, in the order of `nodes`."""
    by_id = {node.id: node for node in nodes}
    wanted: set[str] = set()
    for node in drawn:
        ancestor: Node | None = node
        while ancestor is not None and ancestor.id not in wanted:
            wanted.add(ancestor.id)
            ancestor = by_id.get(ancestor.parent)
    return [node for node in nodes if node.id in wanted]


def _node_details(
    tree: pci.PciTree, node: Node, name: str, link: PcieLink | None
) -> dict[str, str]:
    device = tree.devices.get(node.id)
    return {
        "name": name,
        "address": node.id if device is not None else "",
        "driver": truncate(device.driver if device is not None else "") or "none",
        "link": _link(link),
        "numa": str(node.numa) if node.numa >= 0 else "unknown",
    }


def _link(link: PcieLink | None) -> str:
    """Return the link's current speed, and its maximum if higher: `PCIe 4 x16, 31.5 GB/s`."""
    if link is None:
        return "not a PCIe device"
    if not link.speed or not link.lanes:
        return "unknown"
    more = link.known and link.max_text != link.text
    return f"{link.text} (at most {link.max_text})" if more else link.text


def _short_name(tree: pci.PciTree, node: Node, name: str) -> str:
    """Return `GPU 0` or `BlueField-3 c8:00.0`, with the domain unless it is 0."""
    address = node.id.removeprefix("pci").removeprefix("0000:")
    if node.kind == "socket":
        return name
    if node.kind == "gpu" and name.startswith("GPU "):
        return f"{name.partition(' (')[0]} {address}"
    device = tree.devices.get(node.id)
    if node.kind in _RANK and device is not None:
        return f"{device.name} {address}"
    return f"{node.kind} {address}"
