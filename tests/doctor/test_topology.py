# SPDX-License-Identifier: Apache-2.0
"""How near devices are, against a reference that walks an explicit graph."""

from __future__ import annotations

from collections import deque
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.doctor.machines import machine
from support.doctor.pci import Dev, dpu, gpu, nic, sysfs

from dgkit.doctor.facts import pci, topology
from dgkit.doctor.facts.pci import PciTree
from dgkit.doctor.facts.topology import Near


def tree(devices: list[Dev], nodes: str = "0-1") -> PciTree:
    return machine(sysfs(devices, nodes=nodes)).know(pci.tree)


# The reference: a machine as a graph whose nodes know what they are, and the shortest path in it.
class Graph:
    """`what`: machine, numa, host, root, up, down, slot or function, of each node by its name."""

    def __init__(self) -> None:
        self.what = {"machine": "machine"}
        self.edges: dict[str, set[str]] = {"machine": set()}
        self.functions: list[Dev] = []

    def add(self, above: str, name: str, what: str) -> str:
        self.what[name] = what
        self.edges[name] = {above}
        self.edges[above].add(name)
        return name

    def between(self, a: str, b: str) -> list[str]:
        """The names of the nodes on the shortest way, both ends left out."""
        came: dict[str, str] = {a: ""}
        waiting = deque([a])
        while b not in came:
            here = waiting.popleft()
            for there in self.edges[here] - came.keys():
                came[there] = here
                waiting.append(there)
        way = []
        while (b := came[b]) != a:
            way.append(b)
        return way[::-1]

    def near(self, a: str, b: str) -> str:
        passed = [self.what[one] for one in self.between(a, b)]
        for what, word in (("machine", "SYS"), ("numa", "NODE"), ("host", "PHB")):
            if what in passed:
                return word
        return "PXB" if passed.count("up") > 1 else "PIX"


class Grower:
    """Draws a machine: how many of each thing hang below each other thing."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.graph, self.bus = draw, Graph(), 0
        for numa in range(self.some(1, 3)):
            node = self.graph.add("machine", f"numa{numa}", "numa")
            for _ in range(self.some(1, 2)):
                self.host(node, numa)

    def some(self, least: int, most: int) -> int:
        number: int = self.draw(st.integers(least, most))
        return number

    def next(self) -> int:
        self.bus += 1
        return self.bus

    def host(self, node: str, numa: int) -> None:
        bus = self.next()
        name = self.graph.add(node, f"pci0000:{bus:02x}", "host")
        for slot in range(self.some(0, 3)):
            if self.some(0, 3) == 0:
                self.card(name, name, bus, slot, numa)
            else:
                port = f"0000:{bus:02x}:{slot:02x}.0"
                self.graph.add(name, port, "root")
                self.link(port, f"{name}/{port}", numa, 2)

    def link(self, above: str, path: str, numa: int, depth: int) -> None:
        """What hangs on a root port or a downstream port: a card, or a switch."""
        bus = self.next()
        if depth == 0 or self.some(0, 1):
            self.card(above, path, bus, 0, numa)
            return
        up = self.graph.add(above, f"0000:{bus:02x}:00.0", "up")
        inner = self.next()
        for slot in range(self.some(1, 3)):
            down = self.graph.add(up, f"0000:{inner:02x}:{slot:02x}.0", "down")
            self.link(down, f"{path}/{up}/{down}", numa, depth - 1)

    def card(self, above: str, path: str, bus: int, slot: int, numa: int) -> None:
        place = self.graph.add(above, f"slot {bus}.{slot}", "slot")
        for function in range(self.some(1, 2)):
            name = f"0000:{bus:02x}:{slot:02x}.{function}"
            self.graph.add(place, name, "function")
            make = self.draw(st.sampled_from([gpu, nic, dpu]))
            self.graph.functions.append(make(f"{path}/{name}", numa))


@st.composite
def graphs(draw: Any) -> Graph:
    return Grower(draw).graph


def reference(graph: Graph) -> PciTree:
    return tree(graph.functions, "0-2")


def check_classes(graph: Graph, found: PciTree) -> None:
    """The class is that of the shortest path through the machine."""
    for one, other in combinations(graph.functions, 2):
        way = topology.path(found, one.address, other.address)
        assert str(way.near) == graph.near(one.address, other.address)
        assert way.why == ""


def check_bridges(graph: Graph, found: PciTree) -> None:
    """The bridges are the ports on the shortest path, in order."""
    for one, other in combinations(graph.functions, 2):
        way = topology.path(found, one.address, other.address)
        passed = graph.between(one.address, other.address)
        ports = [name for name in passed if graph.what[name] in ("root", "up", "down")]
        assert list(way.bridges) == ports
        assert list(way.switches) == [name for name in ports if graph.what[name] == "up"]


def check_both_ends(graph: Graph, found: PciTree) -> None:
    """A path is the same from both ends."""
    for one, other in combinations(graph.functions, 2):
        there = topology.path(found, one.address, other.address)
        back = topology.path(found, other.address, one.address)
        assert (there.near, there.common) == (back.near, back.common)
        assert there.bridges == back.bridges[::-1]


def check_ports(graph: Graph, found: PciTree) -> None:
    """The place of a port gives its kind."""
    words = {"root port": "root", "upstream port": "up", "downstream port": "down", "": "function"}
    assert all(words[found.port(one)] == graph.what[one] for one in found.devices)


def check_drawing(graph: Graph, found: PciTree) -> None:
    """A drawing has each device once, and parents first."""
    nodes = topology.drawing(found)
    ids = [node.id for node in nodes]
    assert len(set(ids)) == len(ids)
    assert {one.address for one in graph.functions} <= set(ids)
    for at, node in enumerate(nodes):
        assert (node.parent in ids[:at]) == (node.kind != "socket")
    kinds = {"root": "root port", "up": "switch", "host": "host bridge", "numa": "socket"}
    for node in nodes:
        wanted = graph.what[node.id]
        assert kinds.get(wanted, node.kind) == node.kind
        assert wanted != "down"


def check_routes(graph: Graph, found: PciTree) -> None:
    """A route leads along the drawing."""
    nodes = {node.id: node for node in topology.drawing(found)}
    for one, other in combinations(graph.functions, 2):
        way = topology.path(found, one.address, other.address)
        ids = topology.route(found, way)
        assert (ids[0], ids[-1]) == (one.address, other.address)
        for left, right in pairwise(ids):
            both = nodes[left], nodes[right]
            steps = both[0].parent == right or both[1].parent == left
            assert steps or [node.kind for node in both] == ["socket", "socket"]


CHECKS = (check_classes, check_bridges, check_both_ends, check_ports, check_drawing, check_routes)


@settings(deadline=None)
@given(graphs())
def test_paths_and_drawings_are_those_of_the_graph(graph: Graph) -> None:
    found = reference(graph)
    for check in CHECKS:
        check(graph, found)


CARD = "pci0000:b0/0000:b0:02.0/0000:b1:00.0"
BF2 = dpu(f"{CARD}/0000:b2:00.0/0000:b3:00.0", 1, "15B3:A2D6")
A30X = gpu(f"{CARD}/0000:b2:01.0/0000:b4:00.0/0000:b5:08.0/0000:b6:00.0", 1, "10DE:20B8")


def test_the_converged_card_of_the_guide_passes_two_switches() -> None:
    way = topology.path(tree([BF2, A30X]), A30X.address, BF2.address)
    assert way.near is Near.PXB
    assert way.switches == ("0000:b4:00.0", "0000:b1:00.0")
    assert way.bridges == (
        *("0000:b5:08.0", "0000:b4:00.0", "0000:b2:01.0"),
        *("0000:b1:00.0", "0000:b2:00.0"),
    )
    assert way.common == ("pci0000:b0", "0000:b0:02.0", "0000:b1:00.0")


def test_two_root_ports_of_a_vmd_are_joined_by_its_host_bridge() -> None:
    inside = "pci0000:00/0000:00:0e.0/pci10000:e0"
    first = nic(f"{inside}/10000:e0:06.0/10000:e1:00.0")
    second = gpu(f"{inside}/10000:e0:07.0/10000:e2:00.0")
    outside = gpu("pci0000:00/0000:00:01.0/0000:01:00.0")
    found = tree([first, second, outside])
    assert topology.path(found, first.address, second.address).near is Near.PHB
    assert topology.path(found, first.address, outside.address).near is Near.PHB


@pytest.mark.parametrize(
    ("nodes", "numas", "near", "sure"),
    [
        ("0-1", (0, 0), Near.NODE, True),
        ("0-1", (0, 1), Near.SYS, True),
        ("0", (-1, -1), Near.NODE, True),
        ("0", (0, -1), Near.NODE, True),
        ("0-1", (0, -1), Near.SYS, False),
        ("0-1", (-1, -1), Near.SYS, False),
        ("", (-1, -1), Near.SYS, False),
    ],
)
def test_across_host_bridges_the_numa_nodes_decide(
    nodes: str, numas: tuple[int, int], near: Near, sure: bool
) -> None:
    first = gpu("pci0000:00/0000:00:01.0/0000:01:00.0", numas[0])
    second = nic("pci0001:00/0001:00:01.0/0001:01:00.0", numas[1])
    way = topology.path(tree([first, second], nodes), first.address, second.address)
    assert way.near is near
    assert (way.why == "") is sure


def test_a_device_that_sysfs_does_not_place_makes_the_path_unsure() -> None:
    readings = sysfs([A30X, BF2])
    readings[f"link /sys/bus/pci/devices/{A30X.address}"] = "/nowhere"
    way = topology.path(machine(readings).know(pci.tree), A30X.address, BF2.address)
    assert way.near is Near.SYS
    assert A30X.address in way.why


def test_a_virtual_function_is_as_near_as_its_card_and_not_drawn() -> None:
    links = {"physfn": f"/sys/devices/{BF2.path}"}
    virtual = nic(BF2.path[:-1] + "2", 1, "15B3:101E", links=links)
    found = tree([A30X, BF2, virtual])
    assert topology.path(found, A30X.address, virtual.address).near is Near.PXB
    assert virtual.address not in [node.id for node in topology.drawing(found)]


def test_bridges_hidden_by_a_container_still_count() -> None:
    readings = sysfs([A30X, BF2])
    readings["names /sys/bus/pci/devices"] = [A30X.address, BF2.address]
    found = machine(readings).know(pci.tree)
    assert topology.path(found, A30X.address, BF2.address).near is Near.PXB
    kinds = [node.kind for node in topology.drawing(found)]
    assert sorted(kinds) == sorted(
        ["socket", "host bridge", "root port", "switch", "switch", "gpu", "dpu"]
    )


@pytest.mark.parametrize("near", list(Near))
def test_the_forums_question_is_answered_for_each_class(near: Near) -> None:
    way = topology.Path("a", "b", near, (), ("x", "y"), ("pci0000:00",))
    said = topology.one_bridge(way)
    assert said.startswith("They are" if near < Near.PHB else "They are not")
    assert "GPUDirect RDMA guide" in said or near < Near.NODE
    assert 1 < said.count(". ") + said.endswith(".") <= 4


def test_the_forums_question_is_left_open_where_the_path_is_not_sure() -> None:
    way = topology.Path("a", "b", Near.SYS, (), (), (), why="the system names no NUMA node for a")
    assert topology.one_bridge(way).startswith("Whether they are is unknown")
