"""Bokeh figures as files for a paper: PDF, SVG or PNG, in the width of a column.

Matplotlib (extra `paper`) draws them from the same `Chart` as the static pictures. Bokeh itself
exports SVG and PDF only through a browser, and leaves the fonts of its SVG to the reader; journals
require fonts that are embedded.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ... import files
from ..base.chart import Axis, Chart, Points

if TYPE_CHECKING:
    from bokeh.model import Model

WIDTHS = {"column": 3.3, "page": 7.0}  # inches: one column, and both with the gap between them
_FORMATS = ("pdf", "svg", "png")
_LEAST, _MOST = 1.5, 20.0  # inches
_FONT, _LINE = 8, 1.2  # points
_HANDLE, _LETTER = 0.5, 0.06  # inches: an entry of the legend, without and per letter
_STYLES: dict[str, dict[str, Any]] = {  # marks that the legend shows, the best first
    "line": {"linestyle": "-"},
    "dash": {"linestyle": (0, (4, 2))},
    "points": {"linestyle": "none", "marker": "o", "markersize": 2},
}
_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"], "font.size": _FONT, "text.usetex": False,
    "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "dgkit",
}  # fmt: skip
_CAPTION = {"pdf": "Subject", "svg": "Description", "png": "Description"}  # keys of the metadata


def save_figure(
    figure: Model, path: str | os.PathLike[str], *, width: str | float = "column",
    height: float | None = None, caption: str = "",
) -> str:  # fmt: skip
    """Save a Bokeh figure as a file for a paper, with legible embedded fonts.

    Its title is not in the picture. It begins the caption, which is stored in the file's metadata
    and returned, for the text of the paper.

    Args:
        figure: A figure of lines, points, areas, bars and images.
        path: A file that ends in .pdf, .svg or .png (600 dpi); it is replaced.
        width: "column" (3.3 in), "page" (7 in), or inches, 1.5 to 20.
        height: Inches; 0.62 of the width if None.
        caption: What the title does not say: machine, provider, number of samples.

    Returns:
        The caption.

    Raises:
        ValueError: The format or a size is invalid, or the figure has glyphs that cannot be drawn.
        ModuleNotFoundError: Matplotlib is not installed.
    """
    target, inches = Path(path), _inches("width", WIDTHS.get(str(width), width))
    if (kind := target.suffix[1:].lower()) not in _FORMATS:
        raise ValueError(f"{str(target)!r} has no known format; it must end in .pdf, .svg or .png")
    from .static_figure import figure_charts  # imports Bokeh

    charts, missing = figure_charts(figure)
    if missing or len(charts) != 1:
        wrong = ", ".join(sorted(missing)) or f"{len(charts)} plots"
        raise ValueError(f"the figure has {wrong}; it must be one plot of lines, points and bars")
    (chart,) = charts
    text = ". ".join(part.rstrip(".") for part in (chart.title, caption) if part) + "."
    high = 0.62 * inches if height is None else _inches("height", height)
    files.replace_file(target, _Drawing(chart, inches, high).saved(kind, text))
    return text


def _inches(name: str, value: str | float) -> float:
    if isinstance(value, str) or not _LEAST <= value <= _MOST:
        names = '"column", "page" or ' if name == "width" else ""
        raise ValueError(f"{name} is {value!r}; it must be {names}{_LEAST:g} to {_MOST:g} inches")
    return float(value)


class _Drawing:
    """A chart as a figure of Matplotlib."""

    def __init__(self, chart: Chart, width: float, height: float) -> None:
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ModuleNotFoundError(
                "figures for papers need Matplotlib: pip install 'dgkit[paper]'"
            ) from error
        self._chart = chart
        self._settings = partial(mpl.rc_context, _SETTINGS)
        with self._settings():
            self._figure = Figure((width, height), layout="constrained")
            self._axes = self._figure.add_subplot()
            self._draw()

    def saved(self, kind: str, caption: str) -> bytes:
        """Return the file's content; the same chart gives the same bytes."""
        metadata: dict[str, Any] = {"Title": self._chart.title, _CAPTION[kind]: caption}
        metadata |= {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
        out = io.BytesIO()
        with self._settings():
            self._figure.savefig(out, format=kind, metadata=metadata, dpi=600)
        return out.getvalue()

    def _draw(self) -> None:
        axes, chart = self._axes, self._chart
        self._scale("x", chart.x, [value for _, x, _, _ in chart.marks for value in x])
        self._scale("y", chart.y, [value for _, _, y, _ in chart.marks for value in y])
        for kind, x, y, what in chart.marks:
            self._marks_by_kind[kind](self, x, y, what)
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=_FONT - 1, width=0.6, length=3, which="major")
        axes.tick_params(width=0.4, length=1.5, which="minor")
        for spine in axes.spines.values():
            spine.set_linewidth(0.6)
        self._legend()

    def _scale(self, side: str, axis: Axis, values: list[float]) -> None:
        axes, low_high = self._axes, axis.ends(values)
        getattr(axes, f"set_{side}scale")("log" if axis.log else "linear")
        ends = [10**end for end in low_high] if axis.log else low_high
        getattr(axes, f"set_{side}lim")(*ends)
        drawn = getattr(axes, f"{side}axis")
        drawn.set_visible(not axis.hidden)
        drawn.set_label_text(axis.label.replace(" (log scale)", ""))
        ticks = [(at, name) for at, name in axis.ticks(*low_high) if _inside(at, low_high)]
        places = [10**at if axis.log else at for at, _ in ticks]
        drawn.set_ticks(places, [name for _, name in ticks])
        if axis.names:
            drawn.set_ticks([], minor=True)
        elif axis.log:
            drawn.set_minor_formatter("")

    def _line(self, x: Points, y: Points, colour: str) -> None:
        self._axes.plot(x, y, color=colour, linewidth=_LINE)

    def _dash(self, x: Points, y: Points, colour: str) -> None:
        self._axes.plot(x, y, color=colour, linewidth=_LINE, linestyle=(0, (4, 2)))

    def _points(self, x: Points, y: Points, colour: str) -> None:
        self._axes.plot(x, y, color=colour, marker="o", markersize=2, linestyle="none")

    def _area(self, x: Points, y: Points, colour: str) -> None:
        self._axes.fill(x, y, color=colour, linewidth=0)

    def _box(self, x: Points, y: Points, colour: str) -> None:
        self._axes.fill([x[0], x[1], x[1], x[0]], [y[0], y[0], y[1], y[1]], color=colour)

    def _frame(self, x: Points, y: Points, colour: str) -> None:
        around = [x[0], x[1], x[1], x[0], x[0]], [y[0], y[0], y[1], y[1], y[0]]
        self._axes.plot(*around, color=colour, linewidth=0.6)

    def _image(self, x: Points, y: Points, picture: Any) -> None:
        self._axes.imshow(
            picture, extent=(x[0], x[1], y[0], y[1]), aspect="auto", interpolation="nearest"
        )

    def _vertical(self, x: Points, _y: Points, colour: str) -> None:
        self._axes.axvline(x[0], color=colour, linewidth=0.8, linestyle=(0, (4, 2)))

    def _horizontal(self, _x: Points, y: Points, colour: str) -> None:
        self._axes.axhline(y[0], color=colour, linewidth=0.8, linestyle=(0, (4, 2)))

    def _text(self, x: Points, y: Points, text: str) -> None:
        self._axes.text(x[0], y[0], text, fontsize=_FONT - 1)

    def _centred(self, x: Points, y: Points, text: str) -> None:
        self._axes.text(x[0], y[0], text, fontsize=_FONT - 1, ha="center", va="center")

    def _legend(self) -> None:
        """Add the legend above the plot: over the data it would hide some."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        drawn = {(colour, kind) for kind, _, _, colour in self._chart.marks if kind in _STYLES}
        handles: list[Any] = []
        for name, colour in self._chart.names.items():
            style = next((_STYLES[kind] for kind in _STYLES if (colour, kind) in drawn), None)
            if style is None:
                handles.append(Patch(color=colour, label=name))
            else:
                handles.append(Line2D([], [], color=colour, label=name, linewidth=_LINE, **style))
        if handles:
            self._figure.legend(
                handles=handles, loc="outside upper center", frameon=False,
                ncols=self._legend_columns(), fontsize=_FONT - 1, handlelength=2.2,
                columnspacing=1.2, borderpad=0,
            )  # fmt: skip

    def _legend_columns(self) -> int:
        """Return the number of columns: all entries in one row if they fit."""
        widths = [_HANDLE + _LETTER * len(name) for name in self._chart.names]
        room = self._figure.get_figwidth()
        return len(widths) if sum(widths) <= room else max(1, int(room / max(widths)))

    _marks_by_kind: ClassVar[dict[str, Callable[..., None]]] = {
        "line": _line, "dash": _dash, "points": _points, "area": _area, "box": _box,
        "frame": _frame, "image": _image, "vertical": _vertical, "horizontal": _horizontal,
        "text": _text, "centred": _centred,
    }  # fmt: skip


def _inside(at: float, ends: tuple[float, float]) -> bool:
    return ends[0] - 1e-9 <= at <= ends[1] + 1e-9
