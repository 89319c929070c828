"""Static pictures of panels as PNG, for places without live views: GitHub, printed pages.

Pillow, a dependency of bokeh, draws them. They are light in every theme: a saved file has one
picture for all readers.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw

from .chart import GREY, TEXT, Chart, font, text_width, write

WIDTH = 720  # px
_MARGIN = 10  # px
_CELL, _LINE = 7, 15  # px, size of a character of fixed width
_NOTE = 16  # px, height of the note below the picture
_COLOURS = 48  # palette size: enough for antialiased text and the colours of bytes

_Block = tuple[int, Callable[[Image.Image, int], None]]  # height in px, and how to draw it at y


class Picture:
    """A picture, built from the top: lines of text, tables, charts.

    Attributes:
        alt: What it shows, as text.
    """

    def __init__(self, alt: str) -> None:
        self.alt = alt
        self._blocks: list[_Block] = []

    def text(self, text: str, *, size: int = 12, colour: str = TEXT) -> None:
        """Add a line, cut off at the edge of the picture."""
        line = _cut(text, font(size), WIDTH - 2 * _MARGIN)

        def draw(image: Image.Image, y: int) -> None:
            write(ImageDraw.Draw(image), (_MARGIN, y + 2), line, colour, font(size))

        self._blocks.append((size + 6, draw))

    def heading(self, title: str, label: str = "") -> None:
        """Add a title, and after it a label such as `software DPU`."""

        def draw(image: Image.Image, y: int) -> None:
            pen = ImageDraw.Draw(image)
            write(pen, (_MARGIN, y + 4), title, TEXT, font(15))
            left = _MARGIN + text_width(title, font(15)) + 12
            if label:
                right = left + text_width(label, font(11)) + 14
                pen.rounded_rectangle((left, y + 5, right, y + 21), 8, fill="#a34a00")
                write(pen, (left + 7, y + 6), label, "white", font(11))

        self._blocks.append((26, draw))

    def fixed(self, lines: Sequence[str]) -> None:
        """Add lines whose characters have the same width."""

        def draw(image: Image.Image, y: int) -> None:
            for row, line in enumerate(lines):
                for column, character in enumerate(line):
                    if character != " ":
                        place = _MARGIN + _CELL * column, y + _LINE * row
                        image.paste(_tile(character), place)

        self._blocks.append((_LINE * len(lines) + 6, draw))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table, its columns as wide as their share of the text."""
        cells = [list(header), *([str(cell) for cell in row] for row in rows)]
        columns = zip(*cells, strict=True)
        needed = [max(text_width(cell, font(12)) for cell in column) + 14 for column in columns]
        scale = min(1.0, (WIDTH - 2 * _MARGIN) / sum(needed))
        widths = [scale * width for width in needed]

        def draw(image: Image.Image, y: int) -> None:
            pen = ImageDraw.Draw(image)
            for number, row in enumerate(cells):
                x, top = float(_MARGIN), y + 18 * number
                for cell, width in zip(row, widths, strict=True):
                    line = _cut(cell, font(12), width - 6)
                    write(pen, (x, top + 2), line, TEXT if number else GREY, font(12))
                    x += width
                pen.line((_MARGIN, top + 18, WIDTH - _MARGIN, top + 18), fill="#dddddd")

        self._blocks.append((18 * len(cells) + 8, draw))

    def chart(self, chart: Chart) -> None:
        """Add a chart."""

        def draw(image: Image.Image, y: int) -> None:
            chart.draw(image, (_MARGIN, y, WIDTH - _MARGIN, y + chart.height))

        self._blocks.append((chart.height, draw))

    def add(self, other: Picture) -> None:
        """Add the content of another picture."""
        self._blocks.append((8, _rule))
        self._blocks += other._blocks

    def drawn(self, note: str = "") -> Drawing:
        """Draw the picture and below it a note, which does not affect `Drawing.state`."""
        height = sum(block for block, _ in self._blocks) + 2 * _MARGIN + (_NOTE if note else 0)
        image = Image.new("RGB", (WIDTH, height), "white")
        y = _MARGIN
        for block, draw in self._blocks:
            draw(image, y)
            y += block
        state = f"{zlib.crc32(image.tobytes()):08x}"
        if note:
            write(ImageDraw.Draw(image), (_MARGIN, y + 2), note, "#6b6f73", font(10))
        ImageDraw.Draw(image).rectangle((0, 0, WIDTH - 1, height - 1), outline="#bdbdbd")
        return Drawing(self.alt, image, state)

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file."""
        return self.drawn().png()


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture that was drawn.

    Attributes:
        alt: What it shows, as text.
        image: Its pixels.
        state: Equal for two pictures that differ only in their notes.
    """

    alt: str
    image: Image.Image
    state: str

    def png(self) -> bytes:
        """Return the drawing as the bytes of a PNG file."""
        out = io.BytesIO()
        self.image.quantize(_COLOURS, Image.Quantize.FASTOCTREE).save(out, "PNG")
        return out.getvalue()


@lru_cache(maxsize=256)
def _tile(character: str) -> Image.Image:
    """Return a character of fixed width; pasting it takes a tenth of the time of drawing text."""
    width = max(_CELL, math.ceil(text_width(character, font(12))))
    tile = Image.new("RGB", (width, _LINE), "white")
    write(ImageDraw.Draw(tile), (width / 2, 12), character, TEXT, font(12), "ms")
    return tile if width == _CELL else tile.resize((_CELL, _LINE), Image.Resampling.LANCZOS)


def _rule(image: Image.Image, y: int) -> None:
    ImageDraw.Draw(image).line((_MARGIN, y + 4, WIDTH - _MARGIN, y + 4), fill="#bdbdbd")


def _cut(text: str, face: object, width: float) -> str:
    """Shorten a line to a width in px."""
    text = " ".join(text.split())
    if text_width(text, face) <= width:
        return text
    while text and text_width(f"{text}...", face) > width:
        text = text[:-1]
    return f"{text}..."
