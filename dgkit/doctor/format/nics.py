# SPDX-License-Identifier: Apache-2.0
"""Map of NICs to GPUs: a table, the devices by bridge, and an answer in one sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ...units import one_line
from ..facts import nic_choice, pci, virtual
from ..facts.link import PcieLink
from ..facts.nic_choice import Choice, Nic
from ..facts.topology import Near, drawing
from ..machine import Machine
from .terminal import WIDTH

_HEADER = ("GPU", "nearest NIC up", "class", "its PCIe", "Gb/s", "GID", "NCCL", "UCX")
_BRIDGES = ("host bridge", "switch")
_MAX_LINES = 40  # of a screen
_MAX_CELL = 22


_ANSWERS = {
    Near.PIX: "No, but here each GPU is under one switch with its NIC, the best placement.",
    Near.PXB: "No; {} are joined by several switches, which is as good as one.",
    Near.PHB: "No; {} are joined by one host bridge, which works; the speed depends on the CPU.",
    Near.NODE: "No; {} are under two host bridges of one NUMA node, which works, slower.",
    Near.SYS: "No, but {} are on two sockets: it is slow, and fails on some platforms; move one of "
    "them, if it is a card.",
}


class Device(msgspec.Struct, frozen=True):
    """A GPU or a NIC of the drawing.

    Attributes:
        name: `GPU 0 (07:00.0)`, `mlx5_0 (08:00.0)`.
        kind: gpu, nic or dpu.
        state: `up`, `down` or `no RDMA`; "" for a GPU.
    """

    name: str
    kind: str
    state: str = ""

    @property
    def text(self) -> str:
        """Name and state."""
        return f"{self.name} {self.state}".rstrip()


class Group(msgspec.Struct, frozen=True):
    """Devices below one switch or host bridge: `pci 3a > 3b:00.0`, the host bridge first."""

    socket: str
    bridge: str
    devices: tuple[Device, ...]


class NicMap(msgspec.Struct, frozen=True):
    """Result of `dgkit doctor --nics`.

    Attributes:
        machine: Name of the machine.
        choices: A GPU each.
        groups: The devices by socket and bridge, for the drawing.
        guest: Whether this is a virtual machine, in which the topology is the hypervisor's.
    """

    machine: str
    choices: tuple[Choice, ...]
    groups: tuple[Group, ...]
    guest: bool

    @property
    def answer(self) -> str:
        """One sentence: must a GPU and its NIC be under one bridge on this machine?"""
        known = [
            choice for choice in self.choices if choice.path is not None and choice.nic is not None
        ]
        question = "Must a GPU and its NIC be under one bridge? "
        if not known:
            return "There is no GPU with a NIC that is up: nothing to compare."
        if self.guest:
            return f"{question}No; and what joins them is the hypervisor's, not visible here."
        worst = max(known, key=lambda choice: choice.path.near if choice.path else Near.PIX)
        assert worst.path is not None
        assert worst.nic is not None
        both = f"{_without_domain(worst.gpu)} and {worst.nic.name}"
        return question + _ANSWERS[worst.path.near].format(both)

    def as_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return {
            "machine": self.machine,
            "answer": self.answer,
            "gpus": [_choice_json(choice) for choice in self.choices],
            "groups": [msgspec.structs.asdict(g) | {"devices": [msgspec.structs.asdict(d)
                       for d in g.devices]} for g in self.groups],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        from ...html_cards import card, table

        body = table(
            "Which NIC for which GPU", _HEADER, [_choice_cells(choice) for choice in self.choices]
        )
        rows = [(group.bridge, _devices(group)) for group in self.groups]
        return card(f"{self.machine}: {self.answer}", rows, body=body)


def nic_map(machine: Machine) -> NicMap:
    """Return which NIC serves which GPU of a machine."""
    return NicMap(
        machine=machine.name,
        choices=machine.know(nic_choice.choices),
        groups=tuple(_groups(machine)),
        guest=bool(machine.know(virtual.virtual).is_vm),
    )


def _groups(machine: Machine) -> Iterator[Group]:
    """Yield the devices by the lowest switch or host bridge above them, in the tree's order."""
    nodes = {node.id: node for node in drawing(machine.know(pci.tree))}
    ports: dict[str, list[Nic]] = {}
    for nic in machine.know(nic_choice.nics):
        ports.setdefault(nic.address, []).append(nic)
    labels = {choice.address: choice.gpu for choice in machine.know(nic_choice.choices)}
    found: dict[tuple[str, str], list[Device]] = {}
    for node in nodes.values():
        if node.kind not in ("gpu", "nic", "dpu"):
            continue
        above, parent = [], nodes.get(node.parent)
        while parent is not None:
            above.append(parent)
            parent = nodes.get(parent.parent)
        bridges = [
            _without_domain(bridge.id) for bridge in reversed(above) if bridge.kind in _BRIDGES
        ]
        where = " > ".join(bridges) or "no bridge"
        devices = found.setdefault((above[-1].label if above else "?", where), [])
        own = ports.get(node.id, [])
        devices += [_device(nic, node.kind) for nic in own]
        if not own:
            label = labels.get(node.id) or f"{node.label.partition(' ')[0]} ({node.id})"
            state = "" if node.kind == "gpu" else "no RDMA"
            devices.append(Device(_without_domain(label), node.kind, state))
    for (socket, bridge), devices in found.items():
        yield Group(socket, bridge, tuple(devices))


def _device(nic: Nic, kind: str) -> Device:
    return Device(f"{nic.name} ({_without_domain(nic.address)})", kind, "up" if nic.up else "down")


def _without_domain(text: str) -> str:
    """Return a text without PCI domains that are 0."""
    return text.replace("pci0000:", "pci ").replace("0000:", "")


def _choice_json(choice: Choice) -> dict[str, object]:
    nic = choice.nic
    return {
        "gpu": choice.gpu,
        "gpu_link": choice.link.text,
        "nic": nic and nic.name,
        "near": choice.path and str(choice.path.near),
        "nic_link": nic and nic.link.text,
        "gbits": nic and nic.gbits,
        "gid": nic and nic.gid and nic.gid.text,
        "nearer_down": choice.down,
        "nccl": choice.nccl,
        "ucx": choice.ucx,
        "why": choice.why,
    }


def _choice_cells(choice: Choice) -> tuple[str, ...]:
    nic, path = choice.nic, choice.path
    if nic is None or path is None:
        return (_name(choice), "none", "", "", "", "", "", "")
    gid = nic.gid.text if nic.gid else "by its LID" if nic.layer == "InfiniBand" else "unknown"
    rate = f"{nic.gbits:g}" if nic.gbits else "?"
    names = (_short(choice.nccl), _short(choice.ucx))
    return (_name(choice), nic.name, str(path.near), _in_use(nic.link), rate, gid, *names)


def _name(choice: Choice) -> str:
    return choice.gpu.partition(" (")[0]


def _in_use(link: PcieLink) -> str:
    """Return generation and lanes, and what they could be if that is more: `4 x8 of 5 x16`."""
    now, most = (
        text.partition(",")[0].removeprefix("PCIe ") for text in (link.text, link.max_text)
    )
    if not link.speed or not link.lanes:
        return "?"
    return f"{now} of {most}" if link.max_rate > link.rate else now


def _short(names: Sequence[str]) -> str:
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return names[0] + more if names else "none"


def table_rows(found: NicMap) -> list[tuple[str, ...]]:
    """Return the header and a row for each GPU."""
    return [_HEADER, *(_choice_cells(choice) for choice in found.choices)]


def lines(found: NicMap) -> list[str]:
    """Return the page: table, reasons, drawing, answer; a screen at most."""
    cells = [[one_line(cell)[:_MAX_CELL] for cell in row] for row in table_rows(found)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_HEADER))]
    table = [
        "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    ]
    if not found.choices:
        table = ["No GPU was found."]
    tail = ["", *textwrap.wrap(found.answer, WIDTH)]
    notes = list(dict.fromkeys(_note_lines(found.choices)))
    room = _MAX_LINES - len(table) - len(tail) - 1
    drawn = _group_lines(found.groups)
    notes = notes[: max(1, room - len(drawn))] if notes else []
    room -= len(notes)
    if len(drawn) > room:
        drawn = [*drawn[: max(0, room - 1)], "... (all of it: --json)"]
    return [*table, *notes, "", *drawn, *tail]


def _note_lines(choices: Iterable[Choice]) -> Iterator[str]:
    for choice in choices:
        if choice.down:
            yield f"{choice.gpu}: nearer, but down: {', '.join(choice.down)}."
        if choice.why.startswith("NCCL"):
            yield f"{choice.gpu}: {choice.why}"
        elif choice.why:
            yield choice.why


def _group_lines(groups: Sequence[Group]) -> list[str]:
    drawn: list[str] = []
    for socket in dict.fromkeys(group.socket for group in groups):
        drawn.append(socket)
        own = [group for group in groups if group.socket == socket]
        for group in own:
            branch = "└─" if group is own[-1] else "├─"
            text = f"{branch} {group.bridge}: {_devices(group)}"
            more = "   " if group is own[-1] else "│  "
            drawn += textwrap.wrap(text, WIDTH, subsequent_indent=f"{more}  ")
    return [one_line(line) for line in drawn]


def _devices(group: Group) -> str:
    return ", ".join(device.text for device in group.devices)
