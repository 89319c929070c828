"""The PCIe tree as a drawing shows it: its nodes, the pairs to choose from, the answer in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...doctor.diagnosis import Diagnosis
from ...doctor.facts import pci
from ...doctor.facts.gpus import Gpu, gpus
from ...doctor.facts.link import PcieLink, links
from ...doctor.facts.topology import Node, Path, drawing, one_bridge, path, route
from ...doctor.goals import Goal
from ...doctor.machine import Machine
from .serialize import cut

__all__ = ["DEVICES", "Pair", "Picture", "picture"]

Pair = tuple[str, str]
_NAME = 120  # characters of a device's name
DEVICES = 64  # that are drawn: GPUs first, then DPUs, then NICs
_RANK = {"gpu": 0, "dpu": 1, "nic": 2}


@dataclass(frozen=True, slots=True)
class Picture:
    """Of one machine, read once. `lines`: by a node's id what a person may want to know of it.

    `short`: by a node's id, its name for a narrow box. `dpus_first`: a pair with a DPU is what the
    goal is about. `left_out`: devices that are not drawn.
    """

    tree: pci.PciTree
    nodes: tuple[Node, ...]
    lines: dict[str, dict[str, str]]
    short: dict[str, str]
    dpus_first: bool = False
    left_out: int = 0

    def of(self, *kinds: str) -> list[Node]:
        """The nodes of these kinds."""
        return [node for node in self.nodes if node.kind in kinds]

    def has(self, pair: Pair | None) -> bool:
        """Whether both are devices of it, the first a GPU and the second a NIC or a DPU."""
        first, second = ([node.id for node in self.of(*kinds)] for kinds in _ENDS)
        return pair is not None and pair[0] in first and pair[1] in second

    @property
    def nearest(self) -> Pair | None:
        """The pair to begin with. Of those as near, one with a DPU."""
        pairs = [(gpu, nic) for gpu in self.of(_ENDS[0][0]) for nic in self.of(*_ENDS[1])]
        if not pairs:
            return None
        gpu, nic = min(pairs, key=lambda pair: self._rank(*pair))
        return gpu.id, nic.id

    def _rank(self, gpu: Node, nic: Node) -> tuple[int, int]:
        kind, near = _RANK[nic.kind], self.way((gpu.id, nic.id)).near
        return (kind, near) if self.dpus_first else (near, kind)

    def way(self, pair: Pair) -> Path:
        """Between the two. ValueError: there are no such two."""
        if not self.has(pair):
            raise ValueError(f"there are no {pair[0]} and {pair[1]}, a GPU and a NIC, to draw")
        return path(self.tree, *pair)

    def route(self, pair: Pair) -> tuple[str, ...]:
        """The ids of the nodes between the two, and the two."""
        return route(self.tree, self.way(pair))

    def title(self, pair: Pair | None) -> str:
        """The two and how near they are."""
        if pair is None:
            return "PCIe devices"
        near = self.way(pair).near
        return f"{self.short[pair[0]]} and {self.short[pair[1]]}: {near}, {near.text}"

    def alt(self, pair: Pair | None) -> str:
        """What there is to see, in words."""
        words = ", ".join(_counted(self.of(kind), kind.upper()) for kind in _RANK if self.of(kind))
        more = f" {self.left_out} more are not drawn." if self.left_out else ""
        text = f"PCIe tree with {words or 'no GPU and no NIC'}.{more}"
        if pair is None:
            return text
        steps = " → ".join(self.lines[each]["name"] for each in self.route(pair))
        return f"{text} {self.title(pair)}. The way: {steps}."

    def told(self, pair: Pair | None) -> dict[str, Any]:
        """What a view shows beside the drawing. ValueError: there is no such pair."""
        choices = [
            [[node.id, self.lines[node.id]["name"]] for node in self.of(*kinds)] for kinds in _ENDS
        ]
        answer = _ALONE if pair is None else one_bridge(self.way(pair))
        question = "" if pair is None else "Need they be under one PCIe bridge? "
        return {
            "gpus": choices[0], "nics": choices[1], "pair": pair,
            "near": "" if pair is None else str(self.way(pair).near),
            "title": self.title(pair), "answer": question + answer, "alt": self.alt(pair),
        }  # fmt: skip


def _counted(nodes: list[Node], kind: str) -> str:
    """`1 DPU (2 ports)`: the functions of a card are its ports."""
    cards = len({node.id.rpartition(".")[0] for node in nodes})
    ports = f" ({len(nodes)} ports)" if len(nodes) > cards else ""
    return f"{cards} {kind}{'s' if cards > 1 else ''}{ports}"


_ENDS = (("gpu",), ("nic", "dpu"))
_ALONE = (
    "How near two devices are is told of a GPU and a NIC or DPU, and not both are to be seen here. "
    "The Arm cores of a DPU do not see the host's GPUs: judge the host, or both sides together."
)


def picture(of: Diagnosis | Machine) -> Picture | None:
    """Of the host where it is known. None: sysfs shows neither GPU nor NIC."""
    machine = (of.case.host or of.case.machine) if isinstance(of, Diagnosis) else of
    tree = machine.know(pci.tree)
    nodes = drawing(tree)
    ends = [node for node in nodes if node.kind in _RANK]
    if not ends:
        return None
    drawn = sorted(ends, key=lambda node: _RANK[node.kind])[:DEVICES]
    kept = _above(nodes, drawn)
    named = {one.address: _gpu(one) for one in machine.know(gpus)}
    names = {node.id: cut(named.get(node.id) or node.label, _NAME) for node in kept}
    known = links(machine, [node.id for node in kept if node.id in tree.devices])
    lines = {node.id: _lines(tree, node, names[node.id], known.get(node.id)) for node in kept}
    short = {node.id: _short(tree, node, names[node.id]) for node in kept}
    arm = isinstance(of, Diagnosis) and of.goal is Goal.ARM_DMA
    return Picture(tree, tuple(kept), lines, short, arm, len(ends) - len(drawn))


def _gpu(gpu: Gpu) -> str:
    """`GPU 0 (0000:1a:00.0), NVIDIA H100 PCIe`, "" if the driver says nothing of it."""
    if gpu.index is None:
        return f"{gpu.name} {gpu.address}" if gpu.name else ""
    return f"{gpu.label}, {gpu.name}" if gpu.name else gpu.label


def _above(nodes: tuple[Node, ...], drawn: list[Node]) -> list[Node]:
    """Those and all that they hang on, in the order of `nodes`."""
    by_id = {node.id: node for node in nodes}
    wanted: set[str] = set()
    for node in drawn:
        at: Node | None = node
        while at is not None and at.id not in wanted:
            wanted.add(at.id)
            at = by_id.get(at.parent)
    return [node for node in nodes if node.id in wanted]


def _lines(tree: pci.PciTree, node: Node, name: str, link: PcieLink | None) -> dict[str, str]:
    known = tree.devices.get(node.id)
    return {
        "name": name,
        "address": node.id if known is not None else "",
        "driver": cut(known.driver if known is not None else "") or "none",
        "link": _link(link),
        "numa": str(node.numa) if node.numa >= 0 else "not told",
    }


def _link(link: PcieLink | None) -> str:
    """`PCIe 4 x16, 31.5 GB/s`, now; and at most, where that is more."""
    if link is None:
        return "not a PCIe device"
    if not link.speed or not link.lanes:
        return "not told"
    more = link.known and link.most != link.now
    return f"{link.now} (at most {link.most})" if more else link.now


def _short(tree: pci.PciTree, node: Node, name: str) -> str:
    """`GPU 0`, `BlueField-3 c8:00.0`: the domain is named where it is not 0."""
    address = node.id.removeprefix("pci").removeprefix("0000:")
    if node.kind == "socket":
        return name
    if node.kind == "gpu" and name.startswith("GPU "):
        return f"{name.partition(' (')[0]} {address}"
    known = tree.devices.get(node.id)
    if node.kind in _RANK and known is not None:
        return f"{known.name} {address}"
    return f"{node.kind} {address}"
