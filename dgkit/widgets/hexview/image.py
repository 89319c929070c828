# SPDX-License-Identifier: Apache-2.0
"""The region as an image: a pixel per item, row by row, coloured by its value.

At most 131,072 pixels and 1 MiB are shown at once, whole rows from an offset on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from math import isqrt, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import BoundsError
from ..base.panel import handler
from ..base.session_model import describe
from .region_scan import Key, Read, RegionScan, ShownBytes
from .selection import DTYPES, decode

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from ...session import SessionRegion
    from ..base.page_input import Json, JsonValue

MAX_WIDTH = 4096  # pixels per row
MAX_PIXELS, MAX_READ = 1 << 17, 1 << 20
_CHUNK_BYTES = 256 << 10  # per read
_STATIC = 96  # pixels per side of the static picture
_NAMES = {np.dtype(code).name: name for name, (_, code) in DTYPES.items() if name != "bf16"}

# Colours at equal distances; viridis and inferno as in Matplotlib, by S. van der Walt and N. Smith.
_ANCHORS = {
    "viridis": "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
    "inferno": "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
    "grey": "000000 ffffff",
}
PALETTES = tuple(_ANCHORS)


def palette(name: str) -> bytes:
    """Return 256 colours as bytes: red, green, blue of each."""
    anchors = np.array([list(bytes.fromhex(colour)) for colour in _ANCHORS[name].split()])
    at = np.linspace(0, len(anchors) - 1, 256)
    columns = [np.interp(at, range(len(anchors)), channel) for channel in anchors.T]
    return bytes(np.rint(np.column_stack(columns)).astype("u1"))


@dataclass(frozen=True, slots=True)
class ImageSetting:
    """Type and width of the items, palette and start of an image.

    Attributes:
        dtype: Type of an item, a key of DTYPES; "": that of the region's array, if it has one.
        width: Items per row; 0: the last dimension of the region's array, or a power of two.
        palette: One of PALETTES.
        offset: The byte at which the first row starts.
    """

    dtype: str = ""
    width: int = 0
    palette: str = PALETTES[0]
    offset: int = 0

    def updated(self, changes: Json) -> ImageSetting:
        """Return a copy with these changes.

        Raises:
            TypeError: A name is unknown.
            ValueError: A value is invalid.
        """
        known = {"dtype": ("", *DTYPES), "palette": PALETTES}
        for name, value in changes.items():
            if name not in self.__slots__:
                names = ", ".join(self.__slots__)
                raise TypeError(f"the image has no setting {name!r}; settings: {names}")
            if name in known and value not in known[name]:
                choices = ", ".join(choice for choice in known[name] if choice)
                raise ValueError(f"{name} of the image is {value!r}; it must be one of: {choices}")
        width, offset = changes.get("width", self.width), changes.get("offset", self.offset)
        if type(width) is not int or not 0 <= width <= MAX_WIDTH:
            raise ValueError(
                f"width of the image is {width!r}; it must be 1 to {MAX_WIDTH:,} items per row, "
                "or 0 for a width that suits"
            )
        if type(offset) is not int or offset < 0:
            raise BoundsError(f"offset of the image is {offset!r}; it must be 0 or more")
        return replace(self, **changes)


class Layout(NamedTuple):
    """Layout of the pixels: `rows` rows of `width` items from the byte `at` on, `pixels` in all."""

    dtype: str
    item: int
    width: int
    at: int
    rows: int
    pixels: int

    @classmethod
    def of(cls, region: SessionRegion, setting: ImageSetting) -> Layout:
        """Return the layout of a region's image.

        Raises:
            BoundsError: The region has no whole item at the offset.
        """
        known = describe(region)
        dtype = setting.dtype or _NAMES.get(known["dtype"], "u8")
        item = DTYPES[dtype][0]
        count = (region.size - setting.offset) // item
        if count < 1:
            raise BoundsError(
                f"region {region.name!r} of {region.size:,} bytes has no {dtype} at offset "
                f"{setting.offset:,}"
            )
        width = setting.width or _width(known["shape"], region.size, item)
        rows = max(1, min(-(-count // width), MAX_PIXELS // width, MAX_READ // item // width))
        return cls(dtype, item, width, setting.offset, rows, min(count, rows * width))


def _width(shape: list[int], size: int, item: int) -> int:
    """Return the items per row of an array of `size` bytes, read as items of `item` bytes."""
    row = size * shape[-1] // max(1, prod(shape)) // item if len(shape) > 1 else 0
    return row if 1 <= row <= MAX_WIDTH else min(512, 1 << (isqrt(size // item).bit_length() - 1))


class Pixels(NamedTuple):
    """Levels of 0 to 255, a byte per item, and the values of the first and the last level.

    `odd` has a 1 for each item that is not a finite number; empty if there is none.
    """

    layout: Layout
    levels: bytes
    odd: bytes
    low: float
    high: float


def levels_of(data: bytes, layout: Layout, endian: str) -> Pixels:
    """Return the pixels of bytes: of u8 the value itself, else scaled from least to greatest."""
    if layout.dtype == "u8":
        return Pixels(layout, data, b"", 0, 255)
    values = decode(data, layout.dtype, endian).astype("f8")
    odd = ~np.isfinite(values)
    finite = values[~odd]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    half = high / 2 - low / 2  # halves: the difference may exceed the greatest float
    share = (values / 2 - low / 2) / half if half else np.zeros(len(values))
    levels = np.rint(np.where(odd, 0, share) * 255).astype("u1")
    marks = odd.astype("u1").tobytes() if odd.any() else b""
    return Pixels(layout, levels.tobytes(), marks, low, high)


class RegionImage(RegionScan[Pixels]):
    """The image of the shown region.

    Attributes:
        on: Whether the image is shown; if not, nothing is read for it.
    """

    kind = "image"
    live_s = 0.25

    def __init__(
        self, shown: ShownBytes, endian: Callable[[], str], changed: Callable[[], None]
    ) -> None:
        """Create a hidden image; `changed()` is called when its setting has changed."""
        super().__init__(shown)
        self._endian, self._changed = endian, changed
        self._setting = ImageSetting()
        self._pixels: Pixels | None = None
        self.on = False

    @property
    def setting(self) -> Json | None:
        """The setting; None while the image is hidden."""
        return asdict(self._setting) if self.on else None

    @handler
    def draw_image(self, view: str) -> None:
        """Read the image of the region, if it is shown; an `image` message follows."""
        self.request(str(view))

    def assign(self, value: Json | None) -> None:
        """Show the image with a new setting, or hide it.

        Raises:
            TypeError: The value is neither a dict nor None.
            TypeError, ValueError, BoundsError: As raised by ImageSetting and Layout.
        """
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"image is {value!r}; it must be a dict such as {{'width': 64}}, or None"
            )
        self._show(ImageSetting().updated(value or {}), value is not None)

    @handler
    def show_image(self, on: bool, **changes: JsonValue) -> None:
        """Show the image with these changes of its setting, or hide it. Errors as assign()."""
        self._show(self._setting.updated(changes), bool(on))

    def _show(self, setting: ImageSetting, on: bool) -> None:
        region = self._region()
        if region is not None and on:
            Layout.of(region, setting)
        self._setting, self.on = setting, on
        self.renew(urgent=True)
        self._changed()

    def reset(self) -> None:
        """Discard all results; another region is shown from its start."""
        self._setting, self._pixels = replace(self._setting, offset=0), None
        super().reset()

    def _wanted_now(self) -> bool:
        return self.on

    def _scan(self, region: SessionRegion, read: Read) -> Generator[bool, None, Pixels]:
        layout = Layout.of(region, self._setting)
        size, data = layout.pixels * layout.item, bytearray()
        while len(data) < size:
            data += yield from read(layout.at + len(data), min(_CHUNK_BYTES, size - len(data)))
            yield True
        return levels_of(bytes(data), layout, self._endian())

    def _report(self, key: Key, size: int, found: Pixels, asked: bool) -> None:
        self._pixels = found
        colours = self._setting.palette
        if not asked and (key, found, colours) == self._sent:
            return
        self._sent = (key, found, colours)
        self._send(
            self.kind, [found.levels, palette(colours), found.odd], region=key[0], source=key[1],
            size=size, low=found.low, high=found.high, error="", **found.layout._asdict(),
        )  # fmt: skip

    def figure(self) -> Figure | None:
        """Return the image as it was last read, for a saved notebook; None without one."""
        from bokeh.models import LinearColorMapper, Range1d
        from bokeh.plotting import figure

        pixels = self._pixels if self.on else None
        if pixels is None:
            return None
        layout = pixels.layout
        levels, there = np.zeros((2, layout.rows, layout.width))
        levels.flat[: layout.pixels] = np.frombuffer(pixels.levels, "u1")
        there.flat[: layout.pixels] = 1
        small = _reduced(levels) / np.maximum(_reduced(there), 1)
        colours = np.frombuffer(palette(self._setting.palette), "u1").reshape(256, 3)
        mapper = LinearColorMapper(
            palette=[f"#{bytes(colour).hex()}" for colour in colours], low=0, high=255
        )
        found = figure(
            title=f"{layout.pixels:,} items of {layout.dtype}, {layout.width:,} per row",
            x_axis_label="item of the row", y_axis_label="row", height=280,
            x_range=Range1d(start=0, end=layout.width), y_range=Range1d(start=layout.rows, end=0),
        )  # fmt: skip
        found.image([small], x=0, y=0, dw=layout.width, dh=layout.rows, color_mapper=mapper)
        return found


def _reduced(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of blocks of pixels, at most _STATIC blocks in each direction."""
    for axis, size in enumerate(pixels.shape):
        pixels = np.add.reduceat(pixels, range(0, size, -(-size // _STATIC)), axis)
    return pixels
