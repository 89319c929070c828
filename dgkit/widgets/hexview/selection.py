# SPDX-License-Identifier: Apache-2.0
"""View of a hex view: the region, the position in it, the selected bytes and the options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import BoundsError, ClosedError, DgkitError
from ...units import plural, size_text
from ..base import scheduler
from ..base.session_model import SessionModel
from .fetch import SOURCES, why_no_dpu, why_no_host, why_no_write

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from ..base.page_input import Json
    from .fetch import Reader
    from .view_pages import Page

MAX_COPY = 1 << 20  # bytes per copy

# Value types of the hex view: size in bytes, and NumPy's type code (bf16 has none).
DTYPES = {
    "u8": (1, "u1"), "i8": (1, "i1"), "u16": (2, "u2"), "i16": (2, "i2"), "u32": (4, "u4"),
    "i32": (4, "i4"), "u64": (8, "u8"), "i64": (8, "i8"), "f16": (2, "f2"), "bf16": (2, "u2"),
    "f32": (4, "f4"), "f64": (8, "f8"),
}  # fmt: skip


class RegionSelection:
    """The shown region by id and name, without a reference to it, and the position in it.

    `changed()` is called after another region was selected and after the region was freed.

    Attributes:
        at: The first byte in view.
        offset: The byte to which the views were scrolled last, by the user or by a call.
        span: The selected bytes, as (start, stop).
    """

    offset: int
    span: tuple[int, int]

    def __init__(
        self, session: Session, region: SessionRegion | None, changed: Callable[[], None]
    ) -> None:
        if region is not None and region not in session.regions:
            raise ValueError(f"{region!r} is not a live region of {session!r}")
        self.session = session
        self.model = SessionModel.of(session)
        self.follows = region is None
        self.region_id = self._selected() if region is None else region.id
        self.at = self.offset = 0
        self.span = (0, 1)
        self._changed = changed
        self._freed = False
        self._region_name = ""
        self._remember_name()

    def _selected(self) -> int:
        return 0 if self.session.closed else self.model.selected

    def _remember_name(self) -> None:
        region = self.current()
        self._freed = False
        self._region_name = region.name if region is not None else ""

    def current(self) -> SessionRegion | None:
        """Return the shown region, or None if there is none or it was freed."""
        regions = self.session.regions
        return next((region for region in regions if region.id == self.region_id), None)

    def require(self) -> SessionRegion:
        """Return the shown region.

        Raises:
            ClosedError: There is no region, or it was freed.
        """
        region = self.current()
        if region is None:
            raise ClosedError(self.empty_reason)
        return region

    @property
    def empty_reason(self) -> str:
        """Why no region is shown."""
        if self.session.closed:
            return "the session is closed"
        if self._region_name:
            return f"region {self._region_name!r} was freed"
        return "the session has no region yet: session.empty(size) allocates one"

    def choose(self, number: int) -> None:
        """Show the region with this id; if the view follows the session, select it for all panels.

        Raises:
            ValueError: The session has no such live region.
        """
        if self.follows:
            self.model.select(number)
        else:
            self._show(self.model.region(number).id)

    def session_changed(self, what: str) -> None:
        """Follow a change of the session's regions or of its selected region."""
        gone = self.current() is None
        selected = self._selected() if self.follows and (gone or what == "select") else 0
        if selected and selected != self.region_id:
            self._show(selected)
        elif gone and self.region_id and not self._freed:
            self._freed = True
            self._reset()

    def _show(self, region_id: int) -> None:
        self.region_id = region_id
        self._remember_name()
        self._reset()

    def _reset(self) -> None:
        self.go(0, 1)
        self._changed()

    def go(self, start: int, stop: int) -> None:
        """Select bytes, and scroll to them."""
        self.at = self.offset = start
        self.span = (start, stop)

    def scroll_to(self, offset: int) -> None:
        """Scroll to a byte.

        Raises:
            BoundsError: It is not in the region.
            ClosedError: No region is shown.
        """
        region = self.require()
        if type(offset) is not int or not 0 <= offset < region.size:
            raise BoundsError(
                f"offset is {offset!r}; it must be 0 to {region.size - 1:,}: region "
                f"{region.name!r} has {region.size:,} bytes"
            )
        self.at = self.offset = offset

    def check_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return (start, stop) if these are bytes of the region.

        Raises:
            TypeError: An offset is not an int.
            BoundsError: The range is empty or exceeds the region.
            ClosedError: No region is shown.
        """
        region = self.require()
        if type(start) is not int or type(stop) is not int:
            raise TypeError(f"offsets must be whole numbers, not {start!r} and {stop!r}")
        if not 0 <= start < stop <= region.size:
            raise BoundsError(
                f"bytes {start:,} to {stop:,} are not in region {region.name!r}, which has "
                f"{plural(region.size, 'byte')}"
            )
        return start, stop

    def state(self) -> Json:
        """Return the shared state of the session's panels, and the shown region.

        `region` describes the shown region; if it is None, `empty_reason` says why.
        """
        region = self.current()
        about = None if region is None else {
            "id": region.id, "name": region.name, "size": region.size, "where": region.where,
            "text": size_text(region.size), "no_host": why_no_host(region),
            "no_dpu": why_no_dpu(region), "no_write": why_no_write(region),
        }  # fmt: skip
        reason = "" if region is not None else self.empty_reason
        own = {"region": about, "empty_reason": reason, "follows": self.follows}
        return self.model.state() | own


MAX_BYTES = 1 << 16


class SelectedBytes:
    """The first 64 KiB of the selection, as last read.

    Attributes:
        data: The bytes; empty if the DPU does not answer.
        stale: The selection or its bytes may have changed since.
    """

    def __init__(
        self, reader: Reader, selection: RegionSelection, sources: Callable[[], Sequence[str]],
        on_read: Callable[[], None],
    ) -> None:  # fmt: skip
        """Prepare the value without reading anything.

        Args:
            reader: Reads the bytes.
            selection: The region and the selected bytes.
            sources: Returns the sources shown; the first is read.
            on_read: Called on the frame thread when read_later() has read the bytes.
        """
        self.data = b""
        self.stale = True
        self._reader, self._selection = reader, selection
        self._sources, self._on_read = sources, on_read
        self._task: scheduler.Task | None = None

    def freshen(self) -> None:
        """Read the bytes now, if they are stale."""
        if self.stale:
            self.stale, self.data = False, b""
            region, start, size = self._range()
            if region is not None:
                with contextlib.suppress(DgkitError):
                    self.data = self._reader.read(region, self._sources()[:1], start, size)[0]

    def take(self, page: Page) -> bool:
        """Copy the selected bytes from a page that was read; return whether it contains them."""
        region, start, size = self._range()
        at = start - page.at
        if region is None or region.id != page.region:
            return False
        if not 0 <= at <= len(page.parts[0]) - size:
            return False
        self.stale, self.data = False, page.parts[0][at : at + size]
        return True

    def read_later(self) -> None:
        """Read the bytes on the frame thread, which never blocks."""
        if self._task is None or self._task.done:
            self._task = scheduler.start(self._steps(), lambda _error: None)

    def end(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    def _range(self) -> tuple[SessionRegion | None, int, int]:
        region, (start, stop) = self._selection.current(), self._selection.span
        end = stop if region is None else min(stop, region.size)
        return region, start, min(end - start, MAX_BYTES)

    def _steps(self) -> scheduler.Steps:
        while self.stale:
            self.stale = False
            region, start, size = self._range()
            data = b""
            if region is not None:
                with contextlib.suppress(DgkitError):
                    fetch = self._reader.start(region, self._sources()[:1], start, size)
                    try:
                        data = (yield from fetch.steps())[0]
                    finally:
                        self._reader.abandon(fetch)
            self.data = data
            self._on_read()
            yield


_CHOICES: dict[str, tuple[str | int, ...]] = {
    "source": (*SOURCES,), "dtype": ("hex", *DTYPES), "endian": ("little", "big"),
    "columns": (0, 8, 16, 32, 64), "overview_of": ("value", "entropy"),
}  # fmt: skip


class Options:
    """Values of the view's options by name; at first, the first choice of each."""

    def __init__(self) -> None:
        self.values: Json = {name: choices[0] for name, choices in _CHOICES.items()}

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option."""
        return self.values[name]

    def change(self, options: Json) -> None:
        """Change options, all or none.

        Raises:
            ValueError: An option or its value is unknown.
        """
        for name, value in options.items():
            if name not in _CHOICES:
                raise ValueError(f"the hex view has no option {name!r}")
            if isinstance(value, bool) or value not in _CHOICES[name]:
                known = ", ".join(str(choice) for choice in _CHOICES[name])
                raise ValueError(f"{name} is {value!r}; it must be one of: {known}")
        self.values.update(options)

    def source(self, region: SessionRegion | None) -> str:
        """Return the chosen source, or the only one that the region has."""
        if region is not None and why_no_host(region):
            return "dpu"
        return "host" if region is not None and why_no_dpu(region) else str(self["source"])

    def sources(self, region: SessionRegion | None) -> tuple[str, ...]:
        """Return the sources of the bytes shown: `dpu`, `host`, or both."""
        return SOURCES[self.source(region)]

    def check_source(self, region: SessionRegion | None, value: str) -> None:
        """Raise ValueError, with the reason, if the region lacks a source."""
        if region is None or value == self.source(region) or value not in SOURCES:
            return
        why = "" if value == "dpu" else why_no_host(region)
        if why := why or ("" if value == "host" else why_no_dpu(region)):
            raise ValueError(why)


def decode(data: bytes, dtype: str, endian: str) -> NDArray[Any]:
    """Return bytes as values of a type of DTYPES; bf16 as float32."""
    values = np.frombuffer(data, ("<" if endian == "little" else ">") + DTYPES[dtype][1])
    return (values.astype("u4") << 16).view("f4") if dtype == "bf16" else values


def _c_array(data: bytes) -> str:
    lines = [
        "  " + ", ".join(f"0x{byte:02x}" for byte in data[at : at + 12]) + ","
        for at in range(0, len(data), 12)
    ]
    return f"const uint8_t data[{len(data)}] = {{\n" + "\n".join(lines) + "\n};"


FORMATS: dict[str, Callable[[bytes], str]] = {
    "hex": lambda data: data.hex(" "),
    "text": lambda data: data.decode("utf-8", "replace"),
    "python": repr,
    "c": _c_array,
}


def format_bytes(data: bytes, form: str, dtype: str = "u8", endian: str = "little") -> str:
    """Return bytes as text.

    Args:
        form: A key of FORMATS, or "numpy" for a NumPy expression.
        dtype: The value type of the NumPy expression, a key of DTYPES.
        endian: The byte order of the NumPy expression, "little" or "big".

    Raises:
        ValueError: The format is unknown, or the size is not a multiple of the value size.
    """
    if form in FORMATS:
        return FORMATS[form](data)
    if form != "numpy":
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown copy format {form!r}; formats: {known}, numpy")
    size, code = DTYPES.get(dtype, DTYPES["u8"])
    if len(data) % size:
        raise ValueError(f"{len(data):,} bytes are not a multiple of the {size} bytes of a {dtype}")
    order = "|" if size == 1 else "<" if endian == "little" else ">"
    return f'np.frombuffer(bytes.fromhex("{data.hex()}"), dtype="{order}{code}")'
