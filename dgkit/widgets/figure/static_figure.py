"""Static charts of Bokeh figures: the glyphs that dgkit and its tutorials use.

Other glyphs are left out, and the picture names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import FactorRange, LinearColorMapper, LogScale, Plot
from bokeh.models.annotations import Label, Legend
from bokeh.models.renderers import GlyphRenderer
from PIL import Image, ImageColor

from ..base.chart import Axis, Chart
from ..base.picture import Picture

_TITLE_HEIGHT = 280  # px, height of a chart unless its figure is lower
_MOST_NAMES = 6  # of factors on an axis; of more, the groups are named
_AXIS_OF = {"x": 0, "left": 0, "right": 0, "y": 1, "y1": 1, "y2": 1, "top": 1, "bottom": 1}
_MOST_POINTS = 2000  # of a line or a scatter: a picture is 720 px wide


def figure_picture(document: Document, alt: str) -> Picture:
    """Return a picture of the plots of a document, one below the other."""
    picture = Picture(alt)
    plots = [plot for plot in document.select({"type": Plot}) if isinstance(plot, Plot)]
    for plot in plots:
        drawing = _PlotDrawing(plot)
        picture.chart(drawing.chart)
        if drawing.missing:
            picture.text(f"not in this picture: {', '.join(sorted(drawing.missing))}")
    if not plots:
        picture.text(alt or "This output has no figure that a static picture can show.")
    return picture


def figure_charts(figure: Model) -> tuple[list[Chart], set[str]]:
    """Return a chart of each plot in a figure, and the names of glyphs that charts lack."""
    drawings = [_PlotDrawing(each) for each in figure.references() if isinstance(each, Plot)]
    return [drawing.chart for drawing in drawings], set().union(*(d.missing for d in drawings))


class _PlotDrawing:
    """The chart of one plot; `missing` names the glyphs that it lacks."""

    def __init__(self, plot: Any) -> None:
        self.missing: set[str] = set()
        self._plot = plot
        self._factors = [_positions(each) for each in (plot.x_range, plot.y_range)]
        height = min(_TITLE_HEIGHT, plot.height or _TITLE_HEIGHT)
        title = getattr(plot.title, "text", "") or ""
        self.chart = Chart(str(title), self._axis(0), self._axis(1), height=int(height))
        for renderer in plot.renderers:
            if isinstance(renderer, GlyphRenderer) and renderer.visible:
                self._add(renderer)
        for label in plot.select({"type": Label}):
            self.chart.text(float(label.x), float(label.y), str(label.text))
        for legend in plot.select({"type": Legend}):
            self._add_legend(legend)
        for renderer in plot.renderers:
            if len(self._factors[0]) > _MOST_NAMES:
                self._add_factors(renderer.glyph)

    def _axis(self, which: int) -> Axis:
        plot, factors = self._plot, self._factors[which]
        log = isinstance((plot.x_scale, plot.y_scale)[which], LogScale)
        axes = (plot.xaxis, plot.yaxis)[which]
        axis = axes[0] if axes else None
        result = Axis(log=log, hidden=axis is None or not axis.visible)
        result.label = str(getattr(axis, "axis_label", None) or "")
        span = (plot.x_range, plot.y_range)[which]
        low, high = getattr(span, "start", None), getattr(span, "end", None)
        if factors:
            names = [(at, " ".join(key)) for key, at in factors.items()]
            result.names = names if len(names) <= _MOST_NAMES else _groups(factors)
            result.span = (0, math.ceil(max(factors.values()) + 0.4))
        elif low is not None and high is not None and _is_number(low) and _is_number(high):
            result.span = (float(low), float(high))
        elif low is not None and _is_number(low):
            result.start = float(low)
        named = dict(getattr(axis, "major_label_overrides", None) or {})
        if named:
            result.names = [(float(at), str(text)) for at, text in named.items()]
        return result

    def _add(self, renderer: Any) -> None:
        glyph = renderer.glyph
        name = type(glyph).__name__
        add = {
            "Line": self._line, "Scatter": self._scatter, "Circle": self._scatter,
            "VBar": self._vbar, "HBar": self._hbar, "Image": self._image, "Text": self._text,
            "VSpan": self._span, "HSpan": self._span, "Quad": self._quad,
            "Rect": self._rect, "MultiLine": self._multi_line, "VArea": self._varea,
        }.get(name)  # fmt: skip
        if add is None:
            self.missing.add(name)
            return
        add(glyph, renderer.data_source.data)

    def _values(self, glyph: Any, data: Any, name: str) -> list[Any]:
        """Return a property's values, one for each row; numbers for names of a range."""
        spec, rows = getattr(glyph, name), max((len(v) for v in data.values()), default=1)
        column = getattr(spec, "field", spec)
        if isinstance(column, dict):
            column = column.get("field")
        if isinstance(column, str) and column in data:
            values = list(data[column])
            transform = getattr(spec, "transform", None)
            if hasattr(transform, "factors"):
                values = [_mapped(transform, value) for value in values]
            elif isinstance(transform, LinearColorMapper):
                values = [_shaded(transform, value) for value in values]
        else:
            values = [getattr(spec, "value", spec)] * rows
        known = self._factors[_AXIS_OF[name]] if name in _AXIS_OF else {}
        keys = [tuple([v] if isinstance(v, str) else v) if _named(v) else v for v in values]
        return [known.get(v, v) if isinstance(v, tuple) else v for v in keys] if known else values

    def _colour(self, glyph: Any, data: Any, name: str = "line_color") -> list[str]:
        """Return a colour for each row, mixed with white where the glyph is transparent."""
        colours = self._values(glyph, data, name)
        alphas = self._values(glyph, data, name.replace("_color", "_alpha"))
        return [
            _mixed(colour if isinstance(colour, str) else "#1e88e5", alpha)
            for colour, alpha in zip(colours, alphas, strict=False)
        ]

    def _thinned(self, glyph: Any, data: Any) -> tuple[Any, Any]:
        x, y = (np.asarray(self._values(glyph, data, name), float) for name in ("x", "y"))
        step = -(-len(x) // _MOST_POINTS) or 1
        return x[::step].tolist(), y[::step].tolist()

    def _line(self, glyph: Any, data: Any) -> None:
        dashed = bool(glyph.line_dash) and glyph.line_dash != "solid"
        colour = self._colour(glyph, data)[0] if data else "#1e88e5"
        self.chart.line(*self._thinned(glyph, data), colour, dashed=dashed)

    def _scatter(self, glyph: Any, data: Any) -> None:
        colours = self._colour(glyph, data, "fill_color")
        x, y = (self._values(glyph, data, name) for name in ("x", "y"))
        rows = range(0, len(colours), -(-len(colours) // _MOST_POINTS) or 1)
        for colour in dict.fromkeys(colours[row] for row in rows):
            same = [row for row in rows if colours[row] == colour]
            self.chart.points(
                [float(x[row]) for row in same], [float(y[row]) for row in same], colour
            )

    def _vbar(self, glyph: Any, data: Any) -> None:
        names = ("x", "top", "bottom", "width")
        columns = [self._values(glyph, data, name) for name in names]
        colours = self._colour(glyph, data, "fill_color")
        for x, top, bottom, width, colour in zip(*columns, colours, strict=False):
            self.chart.box((x - width / 2, x + width / 2), (bottom, top), colour)

    def _hbar(self, glyph: Any, data: Any) -> None:
        names = ("y", "left", "right", "height")
        columns = [self._values(glyph, data, name) for name in names]
        colours = self._colour(glyph, data, "fill_color")
        for y, left, right, height, colour in zip(*columns, colours, strict=False):
            self.chart.box((left, right), (y - height / 2, y + height / 2), colour)

    def _quad(self, glyph: Any, data: Any) -> None:
        columns = [self._values(glyph, data, n) for n in ("left", "right", "bottom", "top")]
        colours = self._colour(glyph, data, "fill_color")
        for left, right, bottom, top, colour in zip(*columns, colours, strict=False):
            self.chart.box((left, right), (bottom, top), colour)

    def _rect(self, glyph: Any, data: Any) -> None:
        columns = [self._values(glyph, data, name) for name in ("x", "y", "width", "height")]
        columns += [
            self._colour(glyph, data, "fill_color"),
            self._values(glyph, data, "line_color"),
        ]
        for x, y, width, height, fill, edge in zip(*columns, strict=False):
            across, up = (x - width / 2, x + width / 2), (y - height / 2, y + height / 2)
            self.chart.box(across, up, fill)
            if edge:
                self.chart.frame(across, up, str(edge))

    def _multi_line(self, glyph: Any, data: Any) -> None:
        columns = [self._values(glyph, data, name) for name in ("xs", "ys")]
        for xs, ys, colour in zip(*columns, self._colour(glyph, data), strict=False):
            self.chart.line(list(xs), list(ys), colour)

    def _varea(self, glyph: Any, data: Any) -> None:
        x, low, high = (self._values(glyph, data, name) for name in ("x", "y1", "y2"))
        self.chart.area(x, low, high, self._colour(glyph, data, "fill_color")[0])

    def _span(self, glyph: Any, data: Any) -> None:
        vertical = type(glyph).__name__ == "VSpan"
        colours = self._colour(glyph, data)
        for at, colour in zip(
            self._values(glyph, data, "x" if vertical else "y"), colours, strict=False
        ):
            self.chart.across(float(at), colour, vertical=vertical)

    def _text(self, glyph: Any, data: Any) -> None:
        columns = [self._values(glyph, data, name) for name in ("x", "y", "text")]
        for x, y, text in zip(*columns, strict=False):
            self.chart.text(float(x), float(y), str(text), centred=True)

    def _image(self, glyph: Any, data: Any) -> None:
        names = ("image", "x", "y", "dw", "dh")
        columns = [self._values(glyph, data, name) for name in names]
        for pixels, x, y, dw, dh in zip(*columns, strict=False):
            picture = Image.fromarray(_coloured(np.asarray(pixels)[::-1], glyph.color_mapper))
            self.chart.image(picture, (x, x + dw), (y, y + dh))

    def _add_legend(self, legend: Any) -> None:
        for item in legend.items:
            if not item.renderers:
                continue
            renderer = item.renderers[0]
            glyph, data = renderer.glyph, renderer.data_source.data
            filled = "fill_color" in glyph.properties()
            colours = self._colour(glyph, data, "fill_color" if filled else "line_color")
            rows = self._label_rows(item, data)
            for row, name in rows:
                self.chart.legend(name, colours[min(row, len(colours) - 1)] if colours else "gray")

    def _add_factors(self, glyph: Any) -> None:
        """Add a legend of the bars' colours, as the axis names groups of bars only."""
        mapper: Any = getattr(getattr(glyph, "fill_color", None), "transform", None)
        for at, factor in enumerate(getattr(mapper, "factors", ())):
            if isinstance(factor, str):
                self.chart.legend(factor, str(mapper.palette[at % len(mapper.palette)]))

    def _label_rows(self, item: Any, data: Any) -> Iterator[tuple[int, str]]:
        label = item.label
        column = getattr(label, "field", None)
        if column in data:
            seen: set[str] = set()
            for row, value in enumerate(data[column]):
                if str(value) not in seen:
                    seen.add(str(value))
                    yield row, str(value)
            return
        yield item.index or 0, str(getattr(label, "value", label))


def _mixed(colour: str, alpha: Any) -> str:
    """Return a colour on white; `alpha` is 1 for an opaque one."""
    if not _is_number(alpha) or alpha >= 1:
        return colour
    parts = ImageColor.getrgb(colour)[:3]
    return "#" + "".join(f"{round(255 + (part - 255) * alpha):02x}" for part in parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _named(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)
    )


def _positions(span: Any) -> dict[tuple[str, ...], float]:
    """Return the position of each factor of a range: Bokeh's, with a gap between groups."""
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


def _groups(factors: dict[tuple[str, ...], float]) -> list[tuple[float, str]]:
    """Return the middle of each group of factors, with its name."""
    groups: dict[str, list[float]] = {}
    for key, at in factors.items():
        groups.setdefault(key[0], []).append(at)
    return [(sum(at) / len(at), name) for name, at in groups.items()]


def _mapped(mapper: Any, value: Any) -> str:
    """Return the colour that a CategoricalColorMapper gives to a factor."""
    if not isinstance(value, str):
        start, end = mapper.start or 0, mapper.end
        part = tuple(value)[start:end]
        value = part[0] if len(part) == 1 else part
    factors: Sequence[Any] = mapper.factors
    return str(mapper.palette[list(factors).index(value) % len(mapper.palette)])


def _shaded(mapper: Any, value: float) -> str:
    """Return the colour that a LinearColorMapper gives to a number; of none, a light grey."""
    if not _is_number(value):
        return "#ececec"
    share = (value - mapper.low) / (mapper.high - mapper.low)
    palette: Sequence[str] = mapper.palette
    return palette[min(max(int(share * len(palette)), 0), len(palette) - 1)]


def _coloured(values: Any, mapper: Any) -> Any:
    """Return the values of an image as RGB."""
    palette = np.array([ImageColor.getrgb(colour)[:3] for colour in mapper.palette], np.uint8)
    low = float(values.min()) if mapper.low is None else float(mapper.low)
    high = float(values.max()) if mapper.high is None else float(mapper.high)
    share = (values.astype(float) - low) / ((high - low) or 1.0)
    return palette[np.clip((share * len(palette)).astype(int), 0, len(palette) - 1)]
