# SPDX-License-Identifier: Apache-2.0
"""Bokeh plots drawn by Matplotlib: files for a paper, and the picture in a saved notebook.

Bokeh itself exports SVG and PDF only through a browser. A PDF has its font embedded, as journals
require; the text of an SVG stays text, in DejaVu Sans where the reader has it. The glyphs drawn are
those that dgkit and its tutorials use; a picture names the others, and a paper's file is refused
with them.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import files
from ...installation import install_command

if TYPE_CHECKING:
    from bokeh.model import Model
    from bokeh.models import CategoricalColorMapper, LinearColorMapper, Plot, Range
    from bokeh.models.annotations import Legend, LegendItem
    from bokeh.models.glyph import Glyph
    from bokeh.models.renderers import GlyphRenderer
    from matplotlib.artist import Artist
    from matplotlib.figure import SubFigure
    from numpy.typing import NDArray

    from ..base.page_input import Json

WIDTHS = {"column": 3.3, "page": 7.0}  # inches: one column, and both with the gap between them
_PICTURE = 7.2  # inches of a picture of 720 px
_MOST_HEIGHT = 3.6  # inches of one plot in a picture
_FORMATS = ("pdf", "svg", "png")
_LEAST, _MOST = 1.5, 20.0  # inches
_FONT, _LINE = 8, 1.2  # points
_HANDLE, _LETTER = 0.5, 0.06  # inches: an entry of the legend, without and per letter
_SETTINGS = {
    "font.family": ["DejaVu Sans"], "font.size": _FONT, "text.usetex": False,
    "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "dgkit",
}  # fmt: skip
_CAPTION = {"pdf": "Subject", "svg": "Description", "png": "Description"}  # keys of the metadata
_DASHED = (0, (4, 2))
_MOST_NAMES = 6  # of factors on an axis; of more, the groups are named
_MOST_POINTS = 2000  # of a line or a scatter
_AXIS_OF = {"x": 0, "left": 0, "right": 0, "y": 1, "y1": 1, "y2": 1, "top": 1, "bottom": 1}
_Positions = dict[tuple[str, ...], float]  # of the factors of a range
_COLOUR, _NO_COLOUR = "#1e88e5", "#ececec"


def save_figure(
    figure: Model, path: str | os.PathLike[str], *, width: str | float = "column",
    height: float | None = None, caption: str = "",
) -> str:  # fmt: skip
    """Save a Bokeh figure as a file for a paper, in the size of its print.

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
    target, inches = Path(path), _parse_inches("width", WIDTHS.get(str(width), width))
    if (kind := target.suffix[1:].lower()) not in _FORMATS:
        raise ValueError(f"{str(target)!r} has no known format; it must end in .pdf, .svg or .png")
    high = 0.62 * inches if height is None else _parse_inches("height", height)
    mpl = _matplotlib()
    found = plots(figure)
    out = io.BytesIO()
    with mpl.rc_context(_SETTINGS):
        drawn = mpl.figure.Figure((inches, high), layout="constrained")
        drawings = [_PlotDrawing(plot, drawn) for plot in found[:1]]
        missing = ", ".join(sorted(drawings[0].missing)) if drawings else ""
        if missing or len(found) != 1:
            wrong = missing or f"{len(found)} plots"
            raise ValueError(f"the figure has {wrong}; it must be one plot of lines and bars")
        title = drawings[0].title
        text = ". ".join(part.rstrip(".") for part in (title, caption) if part) + "."
        metadata: Json = {"Title": title, _CAPTION[kind]: text}
        metadata |= {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
        drawn.savefig(out, format=kind, metadata=metadata, dpi=600)
    files.replace_file(target, out.getvalue())
    return text


def picture(figures: Sequence[Model]) -> bytes:
    """Return the plots of Bokeh figures, one below the other, as a PNG file of 720 px width.

    Called in any thread: it leaves Matplotlib's settings alone.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    mpl = _matplotlib()
    found = [plot for figure in figures for plot in plots(figure)]
    heights = [min(_MOST_HEIGHT, (plot.height or 280) / 100) for plot in found]
    whole = mpl.figure.Figure((_PICTURE, sum(heights)), dpi=100, layout="constrained")
    parts = whole.subfigures(len(found), 1, height_ratios=heights, squeeze=False)[:, 0]
    for plot, part in zip(found, parts, strict=True):
        drawing = _PlotDrawing(plot, part, legend="lower")  # the title is above
        lacks = f"; not in this picture: {', '.join(sorted(drawing.missing))}"
        title = f"{drawing.title}{lacks * bool(drawing.missing)}"
        if title:
            part.suptitle(title, fontsize=_FONT + 1, x=0.01, ha="left")
    out = io.BytesIO()
    whole.savefig(out, format="png")
    return out.getvalue()


def plots(figure: Model) -> list[Plot]:
    """Return the plots in a figure or layout, in their order."""
    from bokeh.models import Plot

    return [each for each in figure.select({"type": Plot}) if isinstance(each, Plot)]


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError as error:
        raise ModuleNotFoundError(
            f"figures as files need Matplotlib: `{install_command('lab')}`"
        ) from error
    return mpl


def _parse_inches(name: str, value: str | float) -> float:
    if isinstance(value, str) or not _LEAST <= value <= _MOST:
        names = '"column", "page" or ' if name == "width" else ""
        raise ValueError(f"{name} is {value!r}; it must be {names}{_LEAST:g} to {_MOST:g} inches")
    return float(value)


class _Rows:
    """Properties of a glyph, with a value for each row of its data; factors are positions."""

    def __init__(self, renderer: GlyphRenderer[Glyph], factors: Sequence[_Positions]) -> None:
        from bokeh.models import ColumnDataSource

        self.glyph, self.kind = renderer.glyph, type(renderer.glyph).__name__
        source = renderer.data_source
        self.data = source.data if isinstance(source, ColumnDataSource) else {}
        self._factors = factors

    def values(self, name: str) -> list[Any]:
        """Return a property's values; numbers for the names of a range."""
        from bokeh.models import CategoricalColorMapper, LinearColorMapper

        spec = getattr(self.glyph, name)
        count = max((len(column) for column in self.data.values()), default=1)
        column = getattr(spec, "field", spec)
        if isinstance(column, dict):
            column = column.get("field")
        if isinstance(column, str) and column in self.data:
            values = list(self.data[column])
            transform = getattr(spec, "transform", None)
            if isinstance(transform, CategoricalColorMapper):
                values = [_mapped(transform, value) for value in values]
            elif isinstance(transform, LinearColorMapper):
                values = [_shaded(transform, value) for value in values]
        else:
            values = [getattr(spec, "value", spec)] * count
        known = self._factors[_AXIS_OF[name]] if name in _AXIS_OF else {}
        keys = [tuple([v] if isinstance(v, str) else v) if _named(v) else v for v in values]
        return [known.get(v, v) if isinstance(v, tuple) else v for v in keys] if known else values

    def columns(self, *names: str) -> list[NDArray[np.float64]]:
        """Return properties as columns of numbers."""
        return [np.asarray(self.values(name), float) for name in names]

    def colours(self, part: str) -> list[tuple[str, float]]:
        """Return colour and opacity for each row, of the `line` or the `fill`."""
        pairs = zip(self.values(f"{part}_color"), self.values(f"{part}_alpha"), strict=False)
        return [
            (colour if isinstance(colour, str) else _COLOUR, alpha if _is_number(alpha) else 1.0)
            for colour, alpha in pairs
        ]

    def stroke(self) -> Json:
        """Return colour and dashes of a line, as Matplotlib takes them."""
        dash = getattr(self.glyph, "line_dash", None)
        colour = self.colours("line")[0] if self.data else _COLOUR
        return {"color": colour, "linestyle": _DASHED if dash and dash != "solid" else "-"}


class _PlotDrawing:
    """One plot, drawn into a figure or a part of one; `missing` names the glyphs that it lacks."""

    def __init__(self, plot: Plot, part: SubFigure, *, legend: str = "upper") -> None:
        from bokeh.models.annotations import Label, Legend
        from bokeh.models.renderers import GlyphRenderer

        self.missing: set[str] = set()
        self.title = str(getattr(plot.title, "text", "") or "")
        self._plot, self._part, self._axes = plot, part, part.add_subplot()
        self._factors = [_positions(each) for each in (plot.x_range, plot.y_range)]
        self._handles: dict[str, Artist] = {}  # of the legend, by name
        self._width = part.bbox.width / part.figure.dpi  # inches
        renderers = [
            each for each in plot.renderers if isinstance(each, GlyphRenderer) and each.visible
        ]
        for which in ("x", "y"):
            self._scale(which)
        for order, renderer in enumerate(renderers):
            self._draw(renderer, 2 + order / 1000)
        for label in plot.select({"type": Label}):
            assert isinstance(label, Label)
            x, y = float(str(label.x)), float(str(label.y))
            self._axes.text(x, y, str(label.text), fontsize=_FONT - 1)
        for which in ("x", "y"):
            self._limit(which)
        for each in plot.select({"type": Legend}):
            assert isinstance(each, Legend)
            self._add_legend(each)
        if len(self._factors[0]) > _MOST_NAMES:
            for renderer in renderers:
                self._add_factors(renderer.glyph)
        self._style(legend)

    # Axes

    def _scale(self, which: str) -> None:
        from bokeh.models import LogScale

        if isinstance(getattr(self._plot, f"{which}_scale"), LogScale):
            getattr(self._axes, f"set_{which}scale")("log", nonpositive="mask")

    def _limit(self, which: str) -> None:
        """Set range, ticks and label of an axis, after the glyphs, whose values may decide."""
        from matplotlib import ticker

        plot, axes = self._plot, self._axes
        factors = self._factors["xy".index(which)]
        span, drawn = getattr(plot, f"{which}_range"), getattr(axes, f"{which}axis")
        limit = getattr(axes, f"set_{which}lim")
        low, high = getattr(span, "start", None), getattr(span, "end", None)
        if factors:
            limit(0, math.ceil(max(factors.values()) + 0.4))
        elif _is_number(low):
            limit(low, high if _is_number(high) else None)
        known = getattr(plot, f"{which}axis")
        axis = known[0] if known else None
        drawn.set_visible(axis is not None and bool(axis.visible))
        label = str(getattr(axis, "axis_label", None) or "")
        drawn.set_label_text(label.replace(" (log scale)", ""), fontsize=_FONT)
        named = [
            (float(at), str(text))
            for at, text in dict(getattr(axis, "major_label_overrides", None) or {}).items()
        ]
        if factors:
            named = [(at, " ".join(key)) for key, at in factors.items()]
            named = named if len(named) <= _MOST_NAMES else _groups(factors)
        low, high = sorted(getattr(axes, f"get_{which}lim")())
        if named := [(at, text) for at, text in named if low <= at <= high]:
            drawn.set_ticks([at for at, _ in named], [text for _, text in named])
            drawn.set_ticks([], minor=True)
            return
        drawn.set_major_formatter(lambda value, _: f"{value:,.10g}")
        if drawn.get_scale() == "log":
            decades = math.log10(high / low)
            logarithmic = ticker.LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=8)
            drawn.set_major_locator(logarithmic if decades > 1 else ticker.MaxNLocator(6))
            drawn.set_minor_formatter("")

    def _style(self, legend: str) -> None:
        axes = self._axes
        axes.grid(visible=True, color="#dddddd", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=_FONT - 1, width=0.6, length=3, which="major")
        axes.tick_params(width=0.4, length=1.5, which="minor")
        hidden = not (axes.xaxis.get_visible() or axes.yaxis.get_visible())
        for spine in axes.spines.values():
            spine.set_linewidth(0.0 if hidden else 0.6)
        if not self._handles:
            return
        # Outside of the plot: over the data the legend would hide some.
        widths = [_HANDLE + _LETTER * len(name) for name in self._handles]
        fit = sum(widths) <= self._width
        columns = len(widths) if fit else max(1, int(self._width / max(widths)))
        self._part.legend(
            handles=[*self._handles.values()], labels=[*self._handles], frameon=False,
            loc=f"outside {legend} center", ncols=columns, fontsize=_FONT - 1, handlelength=2.2,
            columnspacing=1.2, borderpad=0,
        )  # fmt: skip

    # Glyphs

    def _draw(self, renderer: GlyphRenderer[Glyph], zorder: float) -> None:
        rows, axes = _Rows(renderer, self._factors), self._axes
        name = rows.kind
        if name == "Line":
            x, y = rows.columns("x", "y")
            step = -(-len(x) // _MOST_POINTS) or 1
            axes.plot(x[::step], y[::step], linewidth=_LINE, zorder=zorder, **rows.stroke())
        elif name == "MultiLine":
            columns = (rows.values(each) for each in ("xs", "ys"))
            for xs, ys, colour in zip(*columns, rows.colours("line"), strict=False):
                axes.plot(list(xs), list(ys), color=colour, linewidth=_LINE, zorder=zorder)
        elif name in ("Scatter", "Circle"):
            x, y = rows.columns("x", "y")
            step = -(-len(x) // _MOST_POINTS) or 1
            colours = rows.colours("fill")[::step]
            axes.scatter(x[::step], y[::step], s=2 * self._width, c=colours, lw=0, zorder=zorder)
        elif name == "VArea":
            colour = rows.colours("fill")[0]
            x, low, high = rows.columns("x", "y1", "y2")
            axes.fill_between(x, low, high, color=colour, lw=0, zorder=zorder)
        elif name in ("VBar", "HBar", "Quad", "Rect"):
            self._boxes(rows, zorder)
        elif name in ("VSpan", "HSpan"):
            line = axes.axvline if name == "VSpan" else axes.axhline
            at = rows.values("x" if name == "VSpan" else "y")
            for each, colour in zip(at, rows.colours("line"), strict=False):
                line(float(each), color=colour, linewidth=0.8, linestyle=_DASHED)
        elif name == "Text":
            x, y = rows.columns("x", "y")
            for left, bottom, text in zip(x, y, rows.values("text"), strict=False):
                axes.text(left, bottom, str(text), fontsize=_FONT - 1, ha="center", va="center")
        elif name == "Image":
            names = ("image", "x", "y", "dw", "dh")
            mapper = getattr(rows.glyph, "color_mapper")  # noqa: B009 - only an Image has one
            images = zip(*(rows.values(each) for each in names), strict=False)
            for pixels, left, bottom, width, height in images:
                axes.imshow(
                    _coloured(np.asarray(pixels), mapper), origin="lower",
                    extent=(left, left + width, bottom, bottom + height), aspect="auto",
                    interpolation="nearest", zorder=zorder,
                )  # fmt: skip
        else:
            self.missing.add(name)

    def _boxes(self, rows: _Rows, zorder: float) -> None:
        from matplotlib.collections import PolyCollection

        name = rows.kind
        if name == "Quad":
            left, right, bottom, top = rows.columns("left", "right", "bottom", "top")
        elif name == "VBar":
            x, width, bottom, top = rows.columns("x", "width", "bottom", "top")
            left, right = x - width / 2, x + width / 2
        elif name == "HBar":
            y, height, left, right = rows.columns("y", "height", "left", "right")
            bottom, top = y - height / 2, y + height / 2
        else:
            x, width, y, height = rows.columns("x", "width", "y", "height")
            left, right, bottom, top = x - width / 2, x + width / 2, y - height / 2, y + height / 2
        corners = np.stack(
            [
                np.column_stack(each)
                for each in ((left, bottom), (right, bottom), (right, top), (left, top))
            ],
            axis=1,
        )
        edges = [each if isinstance(each, str) else "none" for each in rows.values("line_color")]
        self._axes.add_collection(PolyCollection(
            list(corners), facecolors=rows.colours("fill"),
            edgecolors=edges if name == "Rect" else "none", linewidths=0.6, zorder=zorder,
        ))  # fmt: skip
        self._axes.update_datalim(corners.reshape(-1, 2))
        self._axes.autoscale_view()

    # Legend

    def _add_legend(self, legend: Legend) -> None:
        from matplotlib.lines import Line2D

        for item in legend.items:
            if isinstance(item, tuple) or not item.renderers:
                continue
            rows = _Rows(item.renderers[0], self._factors)
            for row, name in self._label_rows(item, rows):
                if rows.kind in ("Line", "MultiLine", "Scatter", "Circle"):
                    points = rows.kind in ("Scatter", "Circle")
                    style = {"marker": "o", "markersize": 2, "linestyle": "none"}
                    part = "fill" if points else "line"
                    colours = rows.colours(part) or [(_COLOUR, 1.0)]
                    look = style if points else rows.stroke()
                    look |= {"color": colours[min(row, len(colours) - 1)]}
                    self._handles[name] = Line2D([], [], linewidth=_LINE, **look)
                else:
                    colours = rows.colours("fill") or [(_COLOUR, 1.0)]
                    self._add_patch(name, colours[min(row, len(colours) - 1)])

    def _add_patch(self, name: str, colour: str | tuple[str, float]) -> None:
        from matplotlib.patches import Patch

        self._handles[name] = Patch(color=colour)

    def _add_factors(self, glyph: Glyph) -> None:
        """Add a legend of the bars' colours, as the axis names groups of bars only."""
        from bokeh.models import CategoricalColorMapper

        mapper = getattr(getattr(glyph, "fill_color", None), "transform", None)
        if not isinstance(mapper, CategoricalColorMapper):
            return
        for at, factor in enumerate(mapper.factors):
            if isinstance(factor, str):
                self._add_patch(factor, str(mapper.palette[at % len(mapper.palette)]))

    def _label_rows(self, item: LegendItem, rows: _Rows) -> Iterator[tuple[int, str]]:
        label = item.label
        column = str(getattr(label, "field", ""))
        if column in rows.data:
            seen: set[str] = set()
            for row, value in enumerate(rows.data[column]):
                if str(value) not in seen:
                    seen.add(str(value))
                    yield row, str(value)
            return
        yield item.index or 0, str(getattr(label, "value", label))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _named(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)
    )


def _positions(span: Range) -> _Positions:
    """Return the position of each factor of a range: Bokeh's, with a gap between groups."""
    from bokeh.models import FactorRange

    if not isinstance(span, FactorRange):
        return {}
    keys = [(key,) if isinstance(key, str) else tuple(key) for key in span.factors]
    positions, at, group = {}, 0.5, keys[0][0] if keys else ""
    for key in keys:
        if len(key) > 1 and key[0] != group:
            at, group = at + 1.0, key[0]
        positions[key] = at
        at += 1.0
    return positions


def _groups(factors: _Positions) -> list[tuple[float, str]]:
    """Return the middle of each group of factors, with its name."""
    groups: dict[str, list[float]] = {}
    for key, at in factors.items():
        groups.setdefault(key[0], []).append(at)
    return [(sum(at) / len(at), name) for name, at in groups.items()]


def _mapped(mapper: CategoricalColorMapper, value: str | Sequence[str]) -> str:
    """Return the colour that a CategoricalColorMapper gives to a factor."""
    if not isinstance(value, str):
        start, end = mapper.start or 0, mapper.end
        part = tuple(value)[start:end]
        value = part[0] if len(part) == 1 else part
    return str(mapper.palette[list(mapper.factors).index(value) % len(mapper.palette)])


def _shaded(mapper: LinearColorMapper, value: float) -> str:
    """Return the colour that a LinearColorMapper gives to a number; of none, a light grey."""
    if not _is_number(value):
        return _NO_COLOUR
    low, high = mapper.low or 0.0, mapper.high or 0.0
    at = int((value - low) / (high - low) * len(mapper.palette))
    return str(mapper.palette[min(max(at, 0), len(mapper.palette) - 1)])


def _coloured(values: NDArray[np.generic], mapper: LinearColorMapper) -> NDArray[np.float64]:
    """Return the values of an image as RGB."""
    from matplotlib.colors import to_rgba_array

    palette: NDArray[np.float64] = to_rgba_array([str(c)[:7] for c in mapper.palette])[:, :3]
    low = float(values.min()) if mapper.low is None else float(mapper.low)
    high = float(values.max()) if mapper.high is None else float(mapper.high)
    share = (values.astype(float) - low) / ((high - low) or 1.0)
    at: NDArray[np.intp] = np.clip((share * len(palette)).astype(int), 0, len(palette) - 1)
    return palette[at]
