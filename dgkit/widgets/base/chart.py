"""Charts of static pictures, drawn with Pillow: lines, points, boxes, images, axes, a legend."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

from PIL import Image, ImageDraw, ImageFont

TEXT, GREY, _LINE = "#212121", "#6b6f73", "#d0d0d0"
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 24, 40  # px around the plot area
_MAX_LEFT = 260  # px, for long names on the y axis
_LEGEND_ROW = 16  # px
_MAX_TICKS = 7
_MICRO = "µ"
_SPELLED = str.maketrans(
    {
        "←": "<-",
        "→": "->",
        "\u00d7": "x",
        "\u2013": "-",
        "\u2212": "-",
        "≤": "<=",
        "≥": ">=",
        _MICRO: "u",
    }
)

Box = tuple[int, int, int, int]
Points = Sequence[float]


@cache
def font(size: int) -> Any:
    """Return Pillow's built-in font, which has little more than ASCII (see `write`)."""
    return ImageFont.load_default(size)


def text_width(text: str, face: Any) -> float:
    """Return the width in px that `write` needs."""
    width: float = face.getlength(_plain(text))
    return width


def write(
    pen: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    colour: str,
    face: Any,
    anchor: str = "la",
) -> None:
    """Draw a line of text: arrows and signs spelled out, letters without accents, µ as it is."""
    pen.text(at, _plain(text), colour, face, anchor=anchor)
    ascent, descent = face.getmetrics()
    left = at[0] - text_width(text, face) * {"l": 0, "m": 0.5, "r": 1}[anchor[0]]
    base = at[1] + {"a": ascent, "m": (ascent - descent) / 2, "s": 0}[anchor[1]]
    for index, letter in enumerate(text):
        if letter == _MICRO:  # drawn as a u with a stem
            x = round(left + text_width(text[:index], face) + face.getbbox("u", anchor="ls")[0])
            pen.line((x, base - 2, x, base + 0.8 * descent), fill=colour)


def _plain(text: str) -> str:
    """Return text in letters of the font."""
    letters = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


@dataclass(slots=True)
class Axis:
    """One axis.

    Attributes:
        label: Quantity and unit.
        log: Logarithmic; values of 0 or less are not drawn.
        span: Start and end; None for those of the values.
        start: Start, if only the end is that of the values.
        names: Positions with their names, instead of numbers.
        hidden: Draw neither ticks nor label.
    """

    label: str = ""
    log: bool = False
    span: tuple[float, float] | None = None
    start: float | None = None
    names: Sequence[tuple[float, str]] = ()
    hidden: bool = False

    def scaled(self, value: float) -> float:
        """Return a value on the linear scale of the axis; NaN if it cannot be drawn."""
        if not self.log:
            return float(value)
        return math.log10(value) if value > 0 else math.nan

    def ends(self, values: Iterable[float]) -> tuple[float, float]:
        """Return the scaled start and end."""
        given = values if self.span is None else self.span
        known = [scaled for scaled in map(self.scaled, given) if math.isfinite(scaled)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if low == high:
            return low - 0.5, high + 0.5
        spare = 0.0 if self.span is not None else 0.04 * (high - low)
        first = math.nan if self.start is None else self.scaled(self.start)
        return first if first < high else low - spare, high + spare

    def ticks(self, low: float, high: float) -> list[tuple[float, str]]:
        """Return scaled positions and their labels."""
        if self.names:
            return [(self.scaled(at), name) for at, name in self.names]
        if self.log:
            parts = (1, 2, 5) if high - low < 2 else (1,)
            values = [
                part * 10.0**power
                for power in range(math.floor(low), math.ceil(high) + 1)
                for part in parts
            ]
            inside = [value for value in values if low <= math.log10(value) <= high]
            every = -(-len(inside) // (2 * _MAX_TICKS)) or 1
            return [(math.log10(value), f"{value:,.10g}") for value in inside[::every]]
        raw = (high - low) / _MAX_TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(part * power for part in (1, 2, 5, 10) if part * power >= raw)
        first = math.ceil(low / step - 1e-9)
        return [
            (number * step, f"{number * step:,.10g}")
            for number in range(first, math.floor(high / step + 1e-9) + 1)
        ]


@dataclass(slots=True)
class Chart:
    """A chart: axes, marks in the order in which they are drawn, and a legend."""

    title: str = ""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    height: int = 220
    _marks: list[tuple[str, Points, Points, Any]] = field(default_factory=list)
    _legend: dict[str, str] = field(default_factory=dict)

    def line(self, x: Points, y: Points, colour: str, *, dashed: bool = False) -> None:
        """Add a line through points; a NaN interrupts it."""
        self._marks.append(("dash" if dashed else "line", x, y, colour))

    def points(self, x: Points, y: Points, colour: str) -> None:
        """Add points."""
        self._marks.append(("points", x, y, colour))

    def area(self, x: Points, low: Points, high: Points, colour: str) -> None:
        """Fill the area between two lines over the same x values."""
        around = [*x, *reversed(list(x))], [*low, *reversed(list(high))]
        self._marks.append(("area", *around, colour))

    def box(self, x: tuple[float, float], y: tuple[float, float], colour: str) -> None:
        """Add a filled box between two values of each axis."""
        self._marks.append(("box", x, y, colour))

    def frame(self, x: tuple[float, float], y: tuple[float, float], colour: str) -> None:
        """Add the outline of a box."""
        self._marks.append(("frame", x, y, colour))

    def image(self, picture: Image.Image, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Add an image between two values of each axis; its first row is at the top."""
        self._marks.append(("image", x, y, picture))

    def across(self, at: float, colour: str, *, vertical: bool) -> None:
        """Add a dashed line over the whole chart."""
        ends = ((at,), ()) if vertical else ((), (at,))
        self._marks.append(("vertical" if vertical else "horizontal", *ends, colour))

    def text(self, x: float, y: float, text: str, *, centred: bool = False) -> None:
        """Add text that starts above a point or is centred on it."""
        self._marks.append(("centred" if centred else "text", (x,), (y,), text))

    def legend(self, name: str, colour: str) -> None:
        """Add an entry of the legend."""
        self._legend[name] = colour

    def draw(self, image: Image.Image, box: Box) -> None:
        """Draw the chart into a box (left, top, right, bottom) of an image."""
        _Drawing(self, image, box).draw()

    @property
    def marks(self) -> list[tuple[str, Points, Points, Any]]:
        """Kind, x values, y values and colour (or image, or text) of each mark."""
        return self._marks

    @property
    def names(self) -> dict[str, str]:
        """Names of the legend and their colours."""
        return self._legend


class _Drawing:
    """One drawing of a chart into a box of an image."""

    def __init__(self, chart: Chart, image: Image.Image, box: Box) -> None:
        self._chart, self._image = chart, image
        self._pen, self._font = ImageDraw.Draw(image), font(11)
        self._box = box
        self._x = chart.x.ends(value for _, x, _, _ in chart.marks for value in x)
        self._y = chart.y.ends(value for _, _, y, _ in chart.marks for value in y)
        left, top, right, bottom = box
        left += self._left_margin()
        used: float = sum(text_width(name, self._font) + 34 for name in self._chart.names)
        rows = math.ceil(used / max(right - left, 1))
        top += _TOP if chart.title else 8
        self._area = (left, top, right - _RIGHT, bottom - _BOTTOM - _LEGEND_ROW * rows)

    def _left_margin(self) -> int:
        """Return the room for the labels of the y axis."""
        names = () if self._chart.y.hidden else self._chart.y.ticks(*self._y)
        widest = max((text_width(name, self._font) for _, name in names), default=0.0)
        return max(_LEFT, min(_MAX_LEFT, math.ceil(widest) + 24))

    def _at(self, x: float, y: float) -> tuple[float, float] | None:
        """Return the pixel of a point, or None if the point cannot be drawn."""
        left, top, right, bottom = self._area
        across, up = self._chart.x.scaled(x), self._chart.y.scaled(y)
        if not (math.isfinite(across) and math.isfinite(up)):
            return None
        share_x = (across - self._x[0]) / (self._x[1] - self._x[0])
        share_y = (up - self._y[0]) / (self._y[1] - self._y[0])
        inside = [min(1.0, max(0.0, share)) for share in (share_x, share_y)]
        return left + inside[0] * (right - left), bottom - inside[1] * (bottom - top)

    def draw(self) -> None:
        left, top, right, bottom = self._area
        if self._chart.title:
            write(
                self._pen, (self._box[0] + 4, self._box[1] + 4), self._chart.title, TEXT, font(12)
            )
        self._axes()
        for kind, x, y, what in self._chart.marks:
            self._marks_by_kind[kind](self, x, y, what)
        if not (self._chart.x.hidden and self._chart.y.hidden):
            self._pen.rectangle((left, top, right, bottom), outline=_LINE)
        self._draw_legend()

    def _axes(self) -> None:
        left, top, right, bottom = self._area
        if not self._chart.x.hidden:
            for at, name in self._chart.x.ticks(*self._x):
                share = (at - self._x[0]) / (self._x[1] - self._x[0])
                x = left + share * (right - left)
                self._pen.line((x, top, x, bottom), fill="#ececec")
                write(self._pen, (x, bottom + 4), name, GREY, self._font, "ma")
            middle = (left + right) / 2
            write(self._pen, (middle, bottom + 19), self._chart.x.label, TEXT, self._font, "ma")
        if not self._chart.y.hidden:
            for at, name in self._chart.y.ticks(*self._y):
                share = (at - self._y[0]) / (self._y[1] - self._y[0])
                y = bottom - share * (bottom - top)
                self._pen.line((left, y, right, y), fill="#ececec")
                write(self._pen, (left - 5, y), name, GREY, self._font, "rm")
            self._upright(self._chart.y.label, (top + bottom) // 2)

    def _upright(self, text: str, middle: int) -> None:
        if not text:
            return
        length = math.ceil(text_width(text, self._font)) + 2
        label = Image.new("RGB", (length, 14), "white")
        write(ImageDraw.Draw(label), (1, 1), text, TEXT, self._font)
        self._image.paste(label.rotate(90, expand=True), (self._box[0], middle - length // 2))

    def _pieces(self, x: Points, y: Points) -> Iterable[list[tuple[float, float]]]:
        piece: list[tuple[float, float]] = []
        for pair in zip(x, y, strict=False):
            at = self._at(*pair)
            if at is None:
                yield piece
                piece = []
            else:
                piece.append(at)
        yield piece

    def _line(self, x: Points, y: Points, colour: str) -> None:
        for piece in self._pieces(x, y):
            if len(piece) > 1:
                self._pen.line(piece, fill=colour, width=2)

    def _dash(self, x: Points, y: Points, colour: str) -> None:
        for piece in self._pieces(x, y):
            for start, end in pairwise(piece):
                self._dashes(start, end, colour)

    def _dashes(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        parts = max(1, int(math.dist(start, end) // 8))
        for part in range(parts):
            ends = [
                tuple(a + (b - a) * share for a, b in zip(start, end, strict=True))
                for share in (part / parts, (part + 0.5) / parts)
            ]
            self._pen.line([*ends[0], *ends[1]], fill=colour, width=1)

    def _points(self, x: Points, y: Points, colour: str) -> None:
        for piece in self._pieces(x, y):
            for across, up in piece:
                self._pen.ellipse((across - 3, up - 3, across + 3, up + 3), fill=colour)

    def _area_mark(self, x: Points, y: Points, colour: str) -> None:
        around = [at for piece in self._pieces(x, y) for at in piece]
        if len(around) > 2:
            self._pen.polygon(around, fill=colour)

    def _corners(self, x: Points, y: Points) -> tuple[float, float, float, float] | None:
        first, last = self._at(x[0], y[0]), self._at(x[1], y[1])
        if first is None or last is None:
            return None
        (x0, y0), (x1, y1) = first, last
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    def _box_mark(self, x: Points, y: Points, colour: str) -> None:
        corners = self._corners(x, y)
        if corners is not None:
            self._pen.rectangle(corners, fill=colour)

    def _frame_mark(self, x: Points, y: Points, colour: str) -> None:
        corners = self._corners(x, y)
        if corners is not None:
            self._pen.rectangle(corners, outline=colour)

    def _image_mark(self, x: Points, y: Points, picture: Image.Image) -> None:
        corners = self._corners(x, y)
        if corners is not None:
            left, top, right, bottom = map(round, corners)
            size = max(1, right - left), max(1, bottom - top)
            self._image.paste(picture.resize(size, Image.Resampling.NEAREST), (left, top))

    def _vertical(self, x: Points, _y: Points, colour: str) -> None:
        at = self._at(x[0], 10 ** self._y[0] if self._chart.y.log else self._y[0])
        if at is not None:
            self._dashes((at[0], self._area[1]), (at[0], self._area[3]), colour)

    def _horizontal(self, _x: Points, y: Points, colour: str) -> None:
        at = self._at(10 ** self._x[0] if self._chart.x.log else self._x[0], y[0])
        if at is not None:
            self._dashes((self._area[0], at[1]), (self._area[2], at[1]), colour)

    def _text(self, x: Points, y: Points, text: str, anchor: str = "ls") -> None:
        at = self._at(x[0], y[0])
        if at is not None:
            write(self._pen, at, text, TEXT, self._font, anchor)

    def _centred(self, x: Points, y: Points, text: str) -> None:
        self._text(x, y, text, "mm")

    def _draw_legend(self) -> None:
        x, y = float(self._area[0]), self._area[3] + _BOTTOM - 2
        for name, colour in self._chart.names.items():
            width = text_width(name, self._font) + 34
            if x > self._area[0] and x + width > self._box[2]:
                x, y = float(self._area[0]), y + _LEGEND_ROW
            self._pen.rectangle((x, y + 3, x + 14, y + 10), fill=colour)
            write(self._pen, (x + 19, y), name, TEXT, self._font)
            x += width

    _marks_by_kind: ClassVar[dict[str, Callable[..., None]]] = {
        "line": _line, "dash": _dash, "points": _points, "area": _area_mark, "box": _box_mark,
        "frame": _frame_mark, "image": _image_mark, "vertical": _vertical,
        "horizontal": _horizontal, "text": _text, "centred": _centred,
    }  # fmt: skip
