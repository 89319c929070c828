# SPDX-License-Identifier: Apache-2.0
"""Parser of a PCIe tree drawn as text, one path per line, into nodes with addresses.

    pci0000:b0 numa=1 cpus=12-23,36-47 / 02.0 root / 00.0 up
      00.0 down / 00.0 a100
      01.0 down / 00.0 cx7 rdma=mlx5_0 net=ens6f0np0

A function is below the one left of its slash, or the last of the line above with less indentation.
Bus numbers are assigned depth first, as a BIOS does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from doctor.synthetic_machines.config_space import Link
from doctor.synthetic_machines.kinds import KINDS, Kind

NO_LINK = Link(0, 0)


@dataclass
class Node:
    """A function. `words`: the words after its kind, `name=value` or a bare name."""

    kind: Kind
    word: str
    slot: str
    words: dict[str, str]
    path: tuple[str, ...] = ()
    numa: int = -1
    cpus: str = ""
    now: Link = NO_LINK
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    buses: tuple[int, int, int] | None = None

    @property
    def address(self) -> str:
        """0000:b6:00.0"""
        return self.path[-1]

    @property
    def at_most(self) -> Link:
        """What its own end of the link can do."""
        return _link(self.words.get("most", ""), self.kind.link)


def nodes(drawing: str, kinds: Mapping[str, Kind] = KINDS) -> list[Node]:
    """All of them, as the system lists them: by address."""
    found: list[Node] = []
    for head, lines in _bridges(drawing):
        name, words = head[0], _words(head[1:])
        numa, cpus = int(words.get("numa", "-1")), words.get("cpus", "")
        top = _nested(lines, kinds)
        _number(top, name, int(name.split(":")[1], 16))
        for one in _all(top):
            one.numa, one.cpus = numa, cpus
            one.now = _now(one)
            found.append(one)
    return sorted(found, key=lambda one: one.address)


def _bridges(drawing: str) -> Iterator[tuple[list[str], list[tuple[int, list[str]]]]]:
    """Each host bridge's line, and the functions below it with their depths, which only compare."""
    head: list[str] = []
    lines: list[tuple[int, list[str]]] = []
    for line in filter(str.strip, drawing.splitlines()):
        functions = [function.split() for function in line.split(" / ")]
        if functions[0][0].startswith("pci"):
            if head:
                yield head, lines
            head, lines = functions.pop(0), []
        indentation = len(line) - len(line.lstrip())
        lines += [(100 * indentation + below, words) for below, words in enumerate(functions)]
    if head:
        yield head, lines


def _words(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _nested(lines: list[tuple[int, list[str]]], kinds: Mapping[str, Kind]) -> list[Node]:
    top: list[Node] = []
    above: list[tuple[int, Node]] = []
    for depth, (slot, word, *rest) in lines:
        while above and above[-1][0] >= depth:
            above.pop()
        node = Node(kinds[word], word, slot, _words(rest))
        if above:
            node.parent = above[-1][1]
            node.parent.children.append(node)
        else:
            top.append(node)
        above.append((depth, node))
    return top


def _number(level: list[Node], above: str, bus: int, path: tuple[str, ...] = ()) -> int:
    """Gives addresses to a bus and all below it; the last bus that was used."""
    path = path or (above,)
    domain = path[0][3:].split(":")[0]
    last = bus
    for one in level:
        one.path = (*path, f"{domain}:{bus:02x}:{one.slot}")
        if one.kind.is_bridge:
            first = last + 1
            last = _number(one.children, above, first, one.path)
            one.buses = (bus, first, last)
    return last


def _all(level: list[Node]) -> Iterator[Node]:
    for one in level:
        yield one
        yield from _all(one.children)


def _link(word: str, otherwise: Link) -> Link:
    """`5x16`"""
    gen, _, lanes = word.partition("x")
    return Link(int(gen), int(lanes)) if word else otherwise


def _now(node: Node) -> Link:
    """What both ends of its link can do, unless the drawing says otherwise.

    A port that leads down shows the link below it, the other ones the link above them.
    """
    below = node.kind.is_bridge and node.kind.express in (4, 6)
    ends = [node, node.children[0] if below and node.children else node.parent]
    if below and not node.children:
        return NO_LINK
    real = [end for end in ends if end is not None]
    for end in real[::-1]:
        if "now" in end.words:
            return _link(end.words["now"], end.kind.link)
    if node.kind.link.gen == 0:
        return node.kind.link
    if len(real) == 1:  # an endpoint on the root bus
        return node.at_most
    return Link(min(e.at_most.gen for e in real), min(e.at_most.lanes for e in real))
