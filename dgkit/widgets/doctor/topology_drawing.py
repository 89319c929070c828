"""The drawing of a PCIe tree: sockets on top, devices below, one pair's way in colour.

The colours are Okabe and Ito's, in shades that a white page and a dark one both bear; the class of
a way is written, too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure

from ...doctor.diagnosis import Diagnosis
from ...doctor.facts.topology import Near, Node
from ...doctor.machine import Machine
from .topology_model import Pair, Picture, picture

__all__ = ["COLOURS", "drawn", "show_topology", "topology_figure"]

COLOURS = {
    Near.PIX: "#009e73",
    Near.PXB: "#1a7fbf",
    Near.PHB: "#b37d00",
    Near.NODE: "#d55e00",
    Near.SYS: "#c0609a",
}
_GREY, _BOX, _TEXT = "#8a8a8a", "#eceff1", "#202124"
_ACROSS, _DOWN, _LEGEND = 104, 74, 110  # px: a device's column, a row, the legend below
_WIDE, _HIGH = 0.92, 0.66  # of a column and of a row
_PAGE = 6  # columns that a notebook shows without a bar to scroll by
_ARCH = -0.48  # rows: between the top of a socket's box and the title
_TIPS = [
    *(("", "@name"), ("address", "@address"), ("driver", "@driver")),
    *(("link", "@link"), ("NUMA node", "@numa")),
]


_Line = tuple[list[float], list[float]]  # its xs and ys


@dataclass(slots=True)
class _Box:
    """Where a node stands, in columns and rows; `wide` in columns."""

    node: Node
    x: float
    y: float
    wide: float = _WIDE


def topology_figure(of: Diagnosis | Machine, pair: Pair | None = None) -> figure:
    """A figure of a machine's GPUs, NICs and DPUs, and what they hang on.

    `pair`: the PCI addresses of a GPU and of a NIC or DPU; without it the nearest two (for
    the goal arm-dma the nearest with a DPU).
    ValueError: there are no such two, or sysfs shows neither GPU nor NIC.
    """
    return drawn(*_wanted(of, pair))


def show_topology(of: Diagnosis | Machine, pair: Pair | None = None) -> None:
    """Shows `topology_figure` under the cell, offline, and says in words what it shows."""
    from ..figure import show

    shown, two = _wanted(of, pair)
    told = shown.told(two)
    show(drawn(shown, two), alt=f"{told['alt']} {told['answer']}")


def _wanted(of: Diagnosis | Machine, pair: Pair | None) -> tuple[Picture, Pair | None]:
    found = picture(of)
    if found is None:
        raise ValueError("sysfs shows neither a GPU nor a NIC: there is nothing to draw")
    if pair is not None:
        found.way(pair)
    return found, pair or found.nearest


def drawn(shown: Picture, pair: Pair | None) -> figure:
    """The figure of what was read already."""
    steps = shown.route(pair) if pair is not None else ()
    boxes = _laid_out(shown.nodes, steps)
    columns = sum(1 for box in boxes.values() if box.wide == _WIDE)
    rows = 1 + max(box.y for box in boxes.values())
    made = figure(
        title=shown.title(pair), toolbar_location=None, tools="",
        width=max(560, int(columns * _ACROSS) + 20),
        height=int(rows * _DOWN) + 40 + (_LEGEND if pair is not None else 0),
        x_range=Range1d(start=-0.6, end=max(columns, 5) - 0.4),
        y_range=Range1d(start=rows - 0.4, end=-0.6),
    )  # fmt: skip
    for part in (made.xaxis, made.yaxis, made.xgrid, made.ygrid):
        part.visible = False
    made.outline_line_color = None
    made.background_fill_alpha = made.border_fill_alpha = 0  # the page's own
    colour = COLOURS[shown.way(pair).near] if pair is not None else _GREY
    _lines(made, boxes, steps, colour)
    _boxes(made, shown, boxes, steps, colour)
    if pair is not None:
        _legend(made, shown.way(pair).near)
    return made


def _below(nodes: Sequence[Node], steps: Sequence[str]) -> dict[str, list[Node]]:
    """By a node's id what hangs on it, from left to right: sockets by their numbers.

    Where there are more columns than a page is wide, the two ends of the way stand side by side, on
    the left: what leads to them comes first, then the first's branch with it at its end, then the
    second's with it at the beginning.
    """
    parents = {node.id: node.parent for node in nodes}
    below: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.numa if node.kind == "socket" else 0):
        below.setdefault(node.parent, []).append(node)
    if not steps or sum(node.id not in below for node in nodes) <= _PAGE:
        return below
    first = _with_above(steps[0], parents)
    last = _with_above(steps[-1], parents)

    def rank(node: Node) -> int:
        if node.parent in first and node.parent not in last:
            return int(node.id in first)
        return 0 if node.id in first else 1 if node.id in last else 2

    return {over: sorted(under, key=rank) for over, under in below.items()}


def _with_above(node: str, parents: Mapping[str, str]) -> set[str]:
    found = set()
    while node:
        found.add(node)
        node = parents[node]
    return found


def _laid_out(nodes: Sequence[Node], steps: Sequence[str]) -> dict[str, _Box]:
    """Each device has a column of its own, in the lowest row; what it hangs on is above it."""
    below = _below(nodes, steps)
    boxes: dict[str, _Box] = {}
    columns = 0

    def place(node: Node, depth: int) -> _Box:
        nonlocal columns
        inner = [place(one, depth + 1) for one in below.get(node.id, ())]
        if inner:
            first, last = inner[0], inner[-1]
            wide = min(max(_WIDE, last.x - first.x + _WIDE), 2.5)
            boxes[node.id] = _Box(node, (first.x + last.x) / 2, depth, wide)
        else:
            boxes[node.id] = _Box(node, columns, depth)
            columns += 1
        return boxes[node.id]

    for socket in below.get("", ()):
        place(socket, 0)
    lowest = max(box.y for box in boxes.values())
    for box in boxes.values():
        if box.node.id not in below:
            box.y = lowest
    return boxes


def _lines(made: figure, boxes: dict[str, _Box], steps: Sequence[str], colour: str) -> None:
    """From each box up to what it hangs on; those of the way over the others."""
    on: list[_Line] = []
    off: list[_Line] = []
    for box in boxes.values():
        over = boxes.get(box.node.parent)
        if over is not None:
            chosen = box.node.id in steps and over.node.id in steps
            (on if chosen else off).append(_elbow(over, box))
    sockets = [boxes[one] for one in steps if boxes[one].node.kind == "socket"]
    if len(sockets) == 2:
        one, other = (box.x for box in sockets)  # over the boxes of those between
        on.append(([one, one, other, other], [0, _ARCH, _ARCH, 0]))
    for lines, shade, width in ((off, _GREY, 1), (on, colour, 4)):
        if lines:
            xs, ys = zip(*lines, strict=True)
            made.multi_line(list(xs), list(ys), line_color=shade, line_width=width)


def _elbow(over: _Box, under: _Box) -> _Line:
    turn = over.y + 0.5
    return [over.x, over.x, under.x, under.x], [over.y, turn, turn, under.y]


def _boxes(
    made: figure, shown: Picture, boxes: dict[str, _Box], steps: Sequence[str], colour: str
) -> None:
    data: dict[str, list[Any]] = {key: [] for key in ("x", "y", "wide", "text", "edge", "thick")}
    data |= {key: [] for key in ("name", "address", "driver", "link", "numa", "fill")}
    for box in boxes.values():
        chosen = box.node.id in steps
        row = {
            "x": box.x, "y": box.y, "wide": box.wide,
            "text": _text(shown.short[box.node.id], box.wide),
            "edge": colour if chosen else _GREY, "thick": 3 if chosen else 1,
            "fill": "#ffffff" if chosen else _BOX, **shown.lines[box.node.id],
        }  # fmt: skip
        for key, column in data.items():
            column.append(row[key])
    source = ColumnDataSource(data)
    rects = made.rect(
        "x", "y", "wide", _HIGH, source=source, border_radius=4,
        fill_color="fill", line_color="edge", line_width="thick",
    )  # fmt: skip
    made.text(
        "x", "y", text="text", source=source, text_align="center", text_baseline="middle",
        text_font_size="11px", text_color=_TEXT, text_line_height=1.15,
    )  # fmt: skip
    made.add_tools(HoverTool(renderers=[rects], tooltips=_TIPS))


def _text(name: str, wide: float) -> str:
    """In lines that fit into the box, at most three."""
    room = int(16 * wide)
    parts = [name] if len(name) <= room else name.split(", ")
    lines = [line for part in parts for line in textwrap.wrap(part, room)]
    return "\n".join(lines[:3])


def _legend(made: figure, near: Near) -> None:
    """All five classes, in words; this one is marked."""
    items: list[LegendItem] = []
    for one in Near:
        line = made.line([-9, -8], [-9, -9], line_color=COLOURS[one], line_width=4)
        mark = "  ← these two" if one is near else ""
        drawn_as: list[Any] = [line]
        items.append(LegendItem(label=f"{one}: {one.text}{mark}", renderers=drawn_as))
    made.add_layout(
        Legend(
            items=items, label_text_font_size="11px", spacing=1, glyph_height=14, label_height=14,
            background_fill_alpha=0, border_line_alpha=0, location="top_left", margin=0,
        ),
        "below",
    )  # fmt: skip
