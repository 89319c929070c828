# SPDX-License-Identifier: Apache-2.0
"""Drawing of a PCIe tree: sockets at the top, devices below, one pair's path in colour.

The colours are Okabe and Ito's, in shades for light and dark pages; the class of the path is also
given as text.
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
from .topology_model import Pair, TopologyModel, topology_model

COLOURS = {
    Near.PIX: "#009e73",
    Near.PXB: "#1a7fbf",
    Near.PHB: "#b37d00",
    Near.NODE: "#d55e00",
    Near.SYS: "#c0609a",
}
_GREY, _BOX, _TEXT = "#8a8a8a", "#eceff1", "#202124"
_COLUMN, _ROW, _LEGEND = 104, 74, 110  # px: width of a column, height of a row and of the legend
_WIDTH, _HEIGHT = 0.92, 0.66  # of a box, as a fraction of a column and of a row
_PAGE = 6  # columns that fit into a notebook without scrolling
_ARCH = -0.48  # row of the line between two sockets, above their boxes
_TIPS = [
    *(("", "@name"), ("address", "@address"), ("driver", "@driver")),
    *(("link", "@link"), ("NUMA node", "@numa")),
]

_Line = tuple[list[float], list[float]]  # x and y coordinates


@dataclass(slots=True)
class _Box:
    """Position of a node, in columns and rows, and its width in columns."""

    node: Node
    x: float
    y: float
    width: float = _WIDTH


def topology_figure(of: Diagnosis | Machine, pair: Pair | None = None) -> figure:
    """Return a figure of a machine's GPUs, NICs and DPUs and the bridges above them.

    Args:
        of: The machine, or a Diagnosis of it.
        pair: PCI addresses of a GPU and of a NIC or DPU; None for the closest two (for the goal
            arm-dma, the closest with a DPU).

    Raises:
        ValueError: If there is no such pair, or sysfs has neither GPU nor NIC.
    """
    return draw(*_select_model(of, pair))


def show_topology(of: Diagnosis | Machine, pair: Pair | None = None) -> None:
    """Show `topology_figure` below the cell, offline, with an alternative text."""
    from ..figure import show

    model, chosen = _select_model(of, pair)
    texts = model.as_dict(chosen)
    show(draw(model, chosen), alt=f"{texts['alt']} {texts['answer']}")


def _select_model(of: Diagnosis | Machine, pair: Pair | None) -> tuple[TopologyModel, Pair | None]:
    model = topology_model(of)
    if model is None:
        raise ValueError("there is nothing to draw: sysfs has neither a GPU nor a NIC")
    if pair is not None:
        model.path(pair)  # raises ValueError if there is no such pair
    return model, pair or model.nearest


def draw(model: TopologyModel, pair: Pair | None) -> figure:
    """Return the figure of a model, with the path of the pair in colour."""
    steps = model.route(pair) if pair is not None else ()
    boxes = _layout(model.nodes, steps)
    columns = sum(1 for box in boxes.values() if box.width == _WIDTH)
    rows = 1 + max(box.y for box in boxes.values())
    plot = figure(
        title=model.title(pair), toolbar_location=None, tools="",
        width=max(560, int(columns * _COLUMN) + 20),
        height=int(rows * _ROW) + 40 + (_LEGEND if pair is not None else 0),
        x_range=Range1d(start=-0.6, end=max(columns, 5) - 0.4),
        y_range=Range1d(start=rows - 0.4, end=-0.6),
    )  # fmt: skip
    for part in (plot.xaxis, plot.yaxis, plot.xgrid, plot.ygrid):
        part.visible = False
    plot.outline_line_color = None
    plot.background_fill_alpha = plot.border_fill_alpha = 0  # transparent
    colour = COLOURS[model.path(pair).near] if pair is not None else _GREY
    _lines(plot, boxes, steps, colour)
    _boxes(plot, model, boxes, steps, colour)
    if pair is not None:
        _legend(plot, model.path(pair).near)
    return plot


def _children(nodes: Sequence[Node], steps: Sequence[str]) -> dict[str, list[Node]]:
    """Return the children of each node by its id, from left to right; sockets by number.

    If the tree is wider than a page, the two ends of the path are placed side by side at the left:
    first the branch of the first device, ending with that device, then the branch of the second,
    which begins with that device.
    """
    parents = {node.id: node.parent for node in nodes}
    children: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.numa if node.kind == "socket" else 0):
        children.setdefault(node.parent, []).append(node)
    if not steps or sum(node.id not in children for node in nodes) <= _PAGE:
        return children
    first = _with_ancestors(steps[0], parents)
    last = _with_ancestors(steps[-1], parents)

    def rank(node: Node) -> int:
        if node.parent in first and node.parent not in last:
            return int(node.id in first)
        return 0 if node.id in first else 1 if node.id in last else 2

    return {parent: sorted(nodes, key=rank) for parent, nodes in children.items()}


def _with_ancestors(node: str, parents: Mapping[str, str]) -> set[str]:
    found = set()
    while node:
        found.add(node)
        node = parents[node]
    return found


def _layout(nodes: Sequence[Node], steps: Sequence[str]) -> dict[str, _Box]:
    """Return the boxes by node id: devices in the lowest row, each in its own column."""
    children = _children(nodes, steps)
    boxes: dict[str, _Box] = {}
    columns = 0

    def place(node: Node, depth: int) -> _Box:
        nonlocal columns
        inner = [place(child, depth + 1) for child in children.get(node.id, ())]
        if inner:
            first, last = inner[0], inner[-1]
            width = min(max(_WIDTH, last.x - first.x + _WIDTH), 2.5)
            boxes[node.id] = _Box(node, (first.x + last.x) / 2, depth, width)
        else:
            boxes[node.id] = _Box(node, columns, depth)
            columns += 1
        return boxes[node.id]

    for socket in children.get("", ()):
        place(socket, 0)
    lowest = max(box.y for box in boxes.values())
    for box in boxes.values():
        if box.node.id not in children:
            box.y = lowest
    return boxes


def _lines(plot: figure, boxes: dict[str, _Box], steps: Sequence[str], colour: str) -> None:
    """Draw a line from each box to its parent; those of the path above the others."""
    on_path: list[_Line] = []
    others: list[_Line] = []
    for box in boxes.values():
        parent = boxes.get(box.node.parent)
        if parent is not None:
            chosen = box.node.id in steps and parent.node.id in steps
            (on_path if chosen else others).append(_elbow(parent, box))
    sockets = [boxes[step] for step in steps if boxes[step].node.kind == "socket"]
    if len(sockets) == 2:
        left, right = (box.x for box in sockets)  # above the boxes between them
        on_path.append(([left, left, right, right], [0, _ARCH, _ARCH, 0]))
    for lines, shade, width in ((others, _GREY, 1), (on_path, colour, 4)):
        if lines:
            xs, ys = zip(*lines, strict=True)
            plot.multi_line(list(xs), list(ys), line_color=shade, line_width=width)


def _elbow(parent: _Box, child: _Box) -> _Line:
    turn = parent.y + 0.5
    return [parent.x, parent.x, child.x, child.x], [parent.y, turn, turn, child.y]


def _boxes(
    plot: figure, model: TopologyModel, boxes: dict[str, _Box], steps: Sequence[str], colour: str
) -> None:
    data: dict[str, list[Any]] = {
        key: [] for key in ("x", "y", "width", "text", "edge", "thickness")
    }
    data |= {key: [] for key in ("name", "address", "driver", "link", "numa", "fill")}
    for box in boxes.values():
        chosen = box.node.id in steps
        row = {
            "x": box.x, "y": box.y, "width": box.width,
            "text": _text(model.short[box.node.id], box.width),
            "edge": colour if chosen else _GREY, "thickness": 3 if chosen else 1,
            "fill": "#ffffff" if chosen else _BOX, **model.lines[box.node.id],
        }  # fmt: skip
        for key, column in data.items():
            column.append(row[key])
    source = ColumnDataSource(data)
    rects = plot.rect(
        "x", "y", "width", _HEIGHT, source=source, border_radius=4,
        fill_color="fill", line_color="edge", line_width="thickness",
    )  # fmt: skip
    plot.text(
        "x", "y", text="text", source=source, text_align="center", text_baseline="middle",
        text_font_size="11px", text_color=_TEXT, text_line_height=1.15,
    )  # fmt: skip
    plot.add_tools(HoverTool(renderers=[rects], tooltips=_TIPS))


def _text(name: str, width: float) -> str:
    """Return the name in at most three lines that fit into the box."""
    characters = int(16 * width)
    parts = [name] if len(name) <= characters else name.split(", ")
    lines = [line for part in parts for line in textwrap.wrap(part, characters)]
    return "\n".join(lines[:3])


def _legend(plot: figure, near: Near) -> None:
    """Add a legend of the five classes, in words, with this one marked."""
    items: list[LegendItem] = []
    for distance in Near:
        line = plot.line([-9, -8], [-9, -9], line_color=COLOURS[distance], line_width=4)
        mark = "  ← these two" if distance is near else ""
        renderers: list[Any] = [line]
        items.append(LegendItem(label=f"{distance}: {distance.text}{mark}", renderers=renderers))
    plot.add_layout(
        Legend(
            items=items, label_text_font_size="11px", spacing=1, glyph_height=14, label_height=14,
            background_fill_alpha=0, border_line_alpha=0, location="top_left", margin=0,
        ),
        "below",
    )  # fmt: skip
