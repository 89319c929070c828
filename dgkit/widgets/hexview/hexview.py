"""The hex view panel: the bytes of a region of any size, as DPU and host see them."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from ipywidgets import ValueWidget

from ...errors import AccessDenied, BoundsError, DgkitError
from ...html_cards import Html, card, hex_lines, provider_badge
from ...units import parse_size, plural, size_text
from ..base import scheduler
from ..base.aio import in_own_thread
from ..base.panel import Buffers, Panel, Reply, handler
from ..base.traits import State, choose_region, region_id
from .bookmarks import Bookmarks
from .clipboard import DTYPES, MAX_BYTES, format_bytes
from .edit import Edit, EditHistory
from .fetch import SOURCES, Reader, why_no_dpu, why_no_host, why_no_write
from .image import RegionImage
from .live_view import LiveView, Page
from .overview import Overview
from .search import parse_pattern
from .search_task import SearchTask
from .selection import RegionSelection
from .structure_view import StructureView

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from ..base.picture import Picture

__all__ = ["HexView"]

STATIC_BYTES = 256  # shown without a kernel
MAX_VALUE = 1 << 16  # bytes of the trait `value`
COLUMNS = (0, 8, 16, 32, 64)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "source": (*SOURCES,), "dtype": ("hex", *DTYPES), "endian": ("little", "big"),
    "columns": COLUMNS, "overview_of": ("value", "entropy"),
}  # fmt: skip


class HexView(Panel, ValueWidget):  # type: ignore[misc]
    """Hex view of the region selected in the session, or of the given one.

    goto(), select(), find() and edit() do from a cell what the controls of the panel do. As a
    widget with a value it can be an argument of ipywidgets.interact().

    Attributes:
        region: The region shown, or None. A view that was made without a region selects the
            assigned one in all panels of the session.
        offset: The byte to which the views were scrolled last; assigning it scrolls them.
        selection: The selected bytes, as (start, stop) with the offset after the last; assigning
            it scrolls the views to them.
        value: The bytes of the selection, its first 64 KiB at most; read-only. They are read again
            when a panel writes to the region, and with each change that live viewing shows.
        columns: Bytes per row: 8, 16, 32 or 64; 0 for 16 or 8, as the width allows.
        source: What is shown: `dpu` (read by DMA), `host` or `both`.
        structure: A structure laid over the bytes, whose fields are listed and coloured: a
            ctypes.Structure class, a structured NumPy dtype, a dict such as
            `{"magic": "u32", "name": "char[16]"}`, or None.
        structure_offset: The offset of its first byte.
        bookmarks: Named places of the region: a dict of name: (start, stop).
        image: The region as an image, a pixel per item: a dict of `dtype` (`u8`, `i16`, `f32`, ...;
            "": that of the region's array), `width` (items per row; 0: those of the array, or a
            power of two), `palette` (`viridis`, `inferno`, `grey`) and `offset` (of the first row),
            all optional, or None.
    """

    name = "hexview"
    title = "Memory"

    region: State[SessionRegion | None] = State(
        lambda panel: panel._region(),
        lambda panel, value: panel._assign_region(value),
        to_json=region_id,
        help="The region shown, or None.",
    )
    offset: State[int] = State(
        lambda panel: panel._offset,
        lambda panel, value: panel._assign_offset(value),
        help="The byte to which the views were scrolled last.",
    )
    selection: State[tuple[int, int]] = State(
        lambda panel: panel._byte_range,
        lambda panel, value: panel._assign_selection(value),
        help="The selected bytes: (start, stop).",
    )
    value: State[bytes] = State(
        lambda panel: panel._value,
        freshen=lambda panel: panel._freshen_value(),
        help="The bytes of the selection, its first 64 KiB at most. Read-only.",
    )
    columns: State[int] = State(
        lambda panel: panel._options["columns"],
        lambda panel, value: panel._assign_option("columns", value),
        help="Bytes per row: 8, 16, 32 or 64; 0 for 16 or 8, as the width allows.",
    )
    source: State[str] = State(
        lambda panel: panel._source(),
        lambda panel, value: panel._assign_option("source", value),
        help="What is shown: dpu (read by DMA), host or both.",
    )
    structure: State[Any] = State(
        lambda panel: panel._structure.described_by,
        lambda panel, value: panel._assign_structure(value),
        to_json=lambda value: None if value is None else str(value),
        help="The structure laid over the bytes: a ctypes class, a dtype, a dict or None.",
    )
    structure_offset: State[int] = State(
        lambda panel: panel._structure.offset,
        lambda panel, value: panel.place_structure(value),
        help="The offset of the structure's first byte.",
    )
    bookmarks: State[dict[str, tuple[int, int]]] = State(
        lambda panel: panel._bookmarks.of(panel._region()),
        lambda panel, value: panel._assign_bookmarks(value),
        help="Named places of the region: name: (start, stop).",
    )
    image: State[dict[str, Any] | None] = State(
        lambda panel: panel._image.setting,
        lambda panel, value: panel._assign_image(value),
        help="The region as an image: dtype, width, palette and offset, or None.",
    )

    def __init__(self, session: Session, region: SessionRegion | None = None) -> None:
        self._session = session
        self._options: dict[str, Any] = {name: choices[0] for name, choices in OPTIONS.items()}
        self._at = self._offset = 0
        self._byte_range = (0, 1)
        self._value = b""
        self._value_task: scheduler.Task | None = None
        self._value_stale = True
        self.reader = Reader()
        self._edits = EditHistory(self._edited, self.fail)
        self._search = SearchTask(self.reader, self.broadcast, self.fail)
        self._live = LiveView(
            self.reader, self._region, lambda: self.sources, self._send_page, self._live_failed
        )
        scanned = (
            self.reader, self._region, lambda: self.sources, lambda: self._live.on,
            self.broadcast, self.fail,
        )  # fmt: skip
        self._overview = Overview(*scanned)
        self._image = RegionImage(*scanned, endian=lambda: self._options["endian"])
        self._structure = StructureView(self.reader, self._region, lambda: self.sources[0])
        self._region_selection = RegionSelection(session, region, self._region_changed)
        self._bookmarks = Bookmarks(self._region_selection.check_range)
        super().__init__()
        self._region_selection.model.subscribe(self)
        self.on_close(self._region_selection.model.listen(self._session_changed))
        self.on_close(self._region_selection.model.add_byte_view(self._show_bytes))

    @property
    def session(self) -> Session:
        """The session of the panel."""
        return self._session

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the bytes shown: `dpu`, `host`, or both."""
        return SOURCES[self._source()]

    def _source(self) -> str:
        """Return the chosen source, or the only one that the region has."""
        region = self._region()
        if region is not None and why_no_host(region):
            return "dpu"
        return "host" if region is not None and why_no_dpu(region) else self._options["source"]

    def _region(self) -> SessionRegion | None:
        return self._region_selection.current()

    def _region_changed(self) -> None:
        """Discard everything that belongs to the previous region."""
        self._at = self._offset = 0
        self._byte_range = (0, 1)
        self._live.reset()
        self._edits.clear()
        self._search.reset()
        self._overview.reset()
        self._image.reset()

    def _session_changed(self, what: str) -> None:
        if what != "written":
            self._bookmarks.keep_only(self._session.regions)
            self._region_selection.session_changed(what)
            self.broadcast_state("state", self.state)
        else:
            self._overview.renew()
            self._image.renew()
        self._update_traits()

    # Traits.

    def _assign_region(self, value: Any) -> None:
        shown = self._region()
        if value is shown:  # None, too: a linked panel has no region either
            return
        model = self._region_selection.model
        self.choose(choose_region(self._session, value, model.regions))

    def _assign_offset(self, value: Any) -> None:
        region = self._region_selection.require()
        if type(value) is not int or not 0 <= value < region.size:
            raise BoundsError(
                f"offset is {value!r}; it must be 0 to {region.size - 1:,}: region "
                f"{region.name!r} has {region.size:,} bytes"
            )
        self._at = self._offset = value
        self.broadcast("scroll", at=value)

    def _assign_selection(self, value: Any) -> None:
        try:
            start, stop = value
        except (TypeError, ValueError):
            raise ValueError(f"selection is {value!r}; it must be (start, stop)") from None
        wanted = self._region_selection.check_range(start, stop)
        if wanted != self._byte_range:
            self._go(*wanted)

    def _assign_option(self, name: str, value: Any) -> None:
        region = self._region()
        if name == "source" and region is not None and value != self._source():
            why = "" if value == "dpu" else why_no_host(region)
            why = why or ("" if value == "host" else why_no_dpu(region))
            if why and value in SOURCES:
                raise ValueError(why)
        self.show(**{name: value})

    def _assign_structure(self, value: Any) -> None:
        self._structure.assign(value)
        self.broadcast_state("state", self.state)

    def _assign_bookmarks(self, value: Any) -> None:
        self._bookmarks.assign(self._region_selection.require(), value)
        self.broadcast_state("state", self.state)

    def _assign_image(self, value: Any) -> None:
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"image is {value!r}; it must be a dict such as {{'width': 64}}, or None"
            )
        self._image.assign(value)
        self.broadcast_state("state", self.state)

    def _update_traits(self) -> None:
        """Refresh the traits; read the selected bytes if a view or an observer awaits them."""
        self._value_stale = True
        observed = self._trait_notifiers.get("value", {}).get("change")
        if not observed and not self._live.viewed:
            self.refresh_traits()
        elif not in_own_thread():
            self._freshen_value()
            self.refresh_traits()
        elif self._value_task is None or self._value_task.done:
            self._value_task = scheduler.start(self._read_in_steps(), lambda _error: None)

    def _freshen_value(self) -> None:
        if self._value_stale:
            self._value_stale, self._value = False, b""  # b"": the DPU does not answer
            region, start, size = self._selected_bytes()
            if region is not None:
                with contextlib.suppress(DgkitError):
                    self._value = self.reader.read(region, self.sources[:1], start, size)[0]

    def _take_value(self, page: Page) -> None:
        """Take the selected bytes from a page that was read, if it has them."""
        region, start, size = self._selected_bytes()
        at = start - page.at
        if region is not None and region.id == page.region and 0 <= at <= len(page.parts[0]) - size:
            self._value_stale, self._value = False, page.parts[0][at : at + size]
            self.refresh_traits()
        else:
            self._update_traits()

    def _selected_bytes(self) -> tuple[SessionRegion | None, int, int]:
        region, (start, stop) = self._region(), self._byte_range
        end = stop if region is None else min(stop, region.size)
        return region, start, min(end - start, MAX_VALUE)

    def _read_in_steps(self) -> Generator[Any, None, None]:
        while self._value_stale:
            self._value_stale = False
            region, start, size = self._selected_bytes()
            value = b""
            if region is not None:
                with contextlib.suppress(DgkitError):
                    fetch = self.reader.start(region, self.sources[:1], start, size)
                    try:
                        value = (yield from fetch.steps())[0]
                    finally:
                        self.reader.abandon(fetch)
            self._value = value
            self.refresh_traits()
            yield

    def state(self) -> dict[str, Any]:
        """Return the shown region, the options, the selection and the search."""
        here = self._bookmarks.of(self._region())
        return self._region_selection.state() | self._options | {
            "source": self._source(), "live": self._live.on, "at": self._at,
            "selection": list(self._byte_range), "search": self._search.state,
            "undoable": self._edits.undoable, "structure": self._structure.state(),
            "bookmarks": [[name, *span] for name, span in here.items()],
            "image": self._image.setting,
        }  # fmt: skip

    # Requests of a view.

    @handler
    def fetch(self, view: str, at: int, n: int, scrolled: bool = False) -> Reply:
        """Return the bytes in view: one buffer per source, then one of flags if `flags`.

        `region` is 0 if the region was freed or replaced; a `state` message follows. `scrolled`:
        the user scrolled to these bytes.
        """
        page = self._live.fetch(str(view), int(at), int(n))
        if page is None:
            return {"region": 0, "at": 0, "size": 0, "sources": 0, "flags": False}, []
        if page.at != self._at:
            self._at = page.at
            self.renew_picture()
        if scrolled:
            self._offset = page.at
            self.refresh_traits()
        if self._value_stale:
            self._take_value(page)
        return page.reply()

    @handler
    def visible(self, view: str, on: bool) -> None:
        """Record that a view is still visible, or no longer; then it is not read for."""
        self._live.set_visible(str(view), bool(on))
        self._overview.set_visible(str(view), bool(on))
        self._image.set_visible(str(view), bool(on))

    @handler
    def overview(self, view: str) -> None:
        """Read the overview of the region; an `overview` message follows."""
        self._overview.request(str(view))

    @handler
    def draw_image(self, view: str) -> None:
        """Read the image of the region, if it is shown; an `image` message follows."""
        self._image.request(str(view))

    @handler
    def show_image(self, on: bool, **changes: Any) -> None:
        """Show the image with these changes of its setting (see `image`), or hide it."""
        self._image.change(bool(on), changes)
        self.broadcast_state("state", self.state)
        self.refresh_traits()

    @handler
    def ack(self, view: str) -> None:
        """Record that a view has drawn the last page; it may be sent the next."""
        self._live.acknowledge(view)

    @handler
    def show(self, **options: Any) -> None:
        """Set `source`, `dtype`, `endian`, `columns` and `overview_of` for all views."""
        for name, value in options.items():
            if name not in OPTIONS:
                raise ValueError(f"the hex view has no option {name!r}")
            if isinstance(value, bool) or value not in OPTIONS[name]:
                known = ", ".join(str(choice) for choice in OPTIONS[name])
                raise ValueError(f"{name} is {value!r}; it must be one of: {known}")
        self._options.update(options)
        self.broadcast_state("state", self.state)
        if "source" in options:
            self._overview.reset()
        if "source" in options or "endian" in options:
            self._image.renew(urgent=True)
        self._update_traits()

    @handler
    def choose(self, number: int) -> None:
        """Show the region with this id; a view that follows the session selects it everywhere."""
        self._region_selection.choose(number)
        self.broadcast_state("state", self.state)
        self._update_traits()

    @handler
    def mark(self) -> None:
        """Clear the change marks: bytes that change from now on are marked."""
        self._live.mark()
        self._overview.mark()
        self.broadcast("refresh")

    @handler
    def watch(self, on: bool) -> None:
        """Turn live viewing on or off: views are sent changes at most 20 times a second."""
        self._live.switch(bool(on))
        self._overview.renew()
        self._image.renew()
        self.broadcast_state("state", self.state)

    @handler
    def set_selection(self, start: int, stop: int) -> None:
        """Record the selected bytes for views that are drawn later."""
        self._byte_range = self._region_selection.check_range(start, stop)
        self._update_traits()

    @handler
    def search(self, text: str, kind: str, start: int, backward: bool = False) -> None:
        """Start a search for `text`, which is `hex` or `text`."""
        self._find(parse_pattern(text, kind), start, backward)

    @handler
    def compare(self, start: int, backward: bool = False, count: bool = False) -> None:
        """Start a search for the next difference of DPU and host, or `count` all of them."""
        region = self._region_selection.require()
        self._search.compare(region, _within(start, region), backward, count, self._on_match)

    @handler
    def as_python(self) -> dict[str, str]:
        """Return the lines of Python that do what the last search did."""
        return {"text": self._search.python()}

    @handler
    def fields(self) -> dict[str, Any]:
        """Return the values of the structure's fields."""
        return self._structure.values()

    @handler
    def place_structure(self, offset: int) -> None:
        """Move the structure to an offset."""
        self._structure.place(offset)
        self.broadcast_state("state", self.state)
        self.refresh_traits()

    @handler
    def bookmark(self, start: int, stop: int, name: str = "") -> dict[str, str]:
        """Bookmark bytes; without a name it is their offset."""
        kept = self._bookmarks.add(self._region_selection.require(), name, start, stop)
        self.broadcast_state("state", self.state)
        self.refresh_traits()
        return {"name": kept}

    @handler
    def remove_bookmark(self, name: str) -> None:
        """Remove a bookmark. Idempotent."""
        self._bookmarks.remove(self._region_selection.require(), name)
        self.broadcast_state("state", self.state)
        self.refresh_traits()

    @handler
    def stop(self) -> None:
        """Cancel the search."""
        self._search.cancel()

    @handler
    def copy(self, start: int, stop: int, form: str) -> dict[str, Any]:
        """Return bytes as text, at most 1 MiB of them: `copied` of the `asked` bytes."""
        start, stop = self._region_selection.check_range(start, stop)
        size = min(stop - start, MAX_BYTES)
        region = self._region_selection.require()
        data = self.reader.read(region, self.sources[:1], start, size)[0]
        text = format_bytes(data, form, self._options["dtype"], self._options["endian"])
        return {"text": text, "copied": size, "asked": stop - start}

    @handler
    def put(self, at: int, buffers: Buffers) -> None:
        """Start to write typed bytes."""
        self._start_edit(at, bytes(buffers[0]) if buffers else b"")

    @handler
    def undo(self) -> dict[str, Any]:
        """Start to write back the bytes that the last edit replaced."""
        edit = self._edits.undo(self._region_selection.require())
        return {"at": edit.at, "size": len(edit.data)}

    # Calls from a cell.

    def goto(self, offset: int | str) -> None:
        """Select one byte and scroll to it.

        Args:
            offset: A number, or a text such as "0x100", "4K" or "end".

        Raises:
            ValueError: The text is not an offset.
            BoundsError: The offset is not in the region.
            ClosedError: No region is shown.
        """
        if isinstance(offset, str):
            end = offset.strip().lower() == "end"
            last = self._region_selection.require().size - 1
            offset = last if end else parse_size(offset, least=0)
        self.select(offset, offset + 1)

    def select(self, start: int, stop: int) -> None:
        """Select the bytes from `start` up to, not including, `stop`, and scroll to them.

        Raises:
            TypeError: An offset is not an int.
            BoundsError: The range is not in the region.
            ClosedError: No region is shown.
        """
        start, stop = self._region_selection.check_range(start, stop)
        self._go(start, stop)

    def find(
        self, pattern: bytes | str, *, start: int | None = None, backward: bool = False
    ) -> None:
        """Start a search; the views scroll to the match.

        Args:
            pattern: Bytes, or text to be encoded as UTF-8.
            start: The offset at which to start; without it, the selection.
            backward: Search towards lower offsets.

        Raises:
            ValueError: The pattern is empty or too long.
            ClosedError: No region is shown.
        """
        text = pattern if isinstance(pattern, str) else bytes(pattern).hex()
        wanted = parse_pattern(text, "text" if isinstance(pattern, str) else "hex")
        begin = self._byte_range[0] + (not backward) if start is None else start
        self._region_selection.require()
        self._on_frame_thread(lambda: self._find(wanted, begin, backward))

    def edit(self, offset: int, data: bytes) -> None:
        """Write bytes by DMA, as typing them does, and wait for the write.

        Raises:
            AccessDenied: The region is read-only.
            BoundsError: The bytes are not in the region.
            DgkitError: As raised by Session.write: ClosedError, TransferError, PeerLost, ...
        """
        self._start_edit(offset, bytes(data)).transfer.wait(self._session.timeout)

    def end(self) -> None:
        """End the search, the overview, the image and live viewing."""
        self._live.switch(False)
        self._search.cancel()
        self._overview.end()
        self._image.end()
        self._live.reset()
        if self._value_task is not None:
            self._value_task.cancel()

    # Implementation.

    def _send_page(self, view: str, page: Page) -> None:
        about, buffers = page.reply()
        self.broadcast("bytes", buffers, view=view, **about)
        if (fields := self._structure.of_page(page)) is not None:
            self.broadcast("fields", **fields)
        self._take_value(page)

    def _live_failed(self, error: Exception) -> None:
        self.fail(error)
        self.broadcast_state("state", self.state)

    def _find(self, pattern: bytes, start: int, backward: bool) -> None:
        region = self._region_selection.require()
        begin = _within(start, region)
        self._search.find(region, self.sources[:1], pattern, begin, backward, self._on_match)

    def _on_match(self, at: int, size: int) -> None:
        self._go(at, at + size)

    def _go(self, start: int, stop: int) -> None:
        self._at = self._offset = start
        self._byte_range = (start, stop)
        self.broadcast("goto", start=start, stop=stop)
        self._update_traits()

    def _show_bytes(self, number: int, start: int, stop: int) -> bool:
        """Scroll to bytes that another panel names, if they are of the shown region."""
        region = self._region()
        if region is None or region.id != number:
            return False
        self._go(start, min(stop, region.size))
        return True

    def _on_frame_thread(self, call: Callable[[], None]) -> None:
        """Run a call of a cell on the frame thread, which alone sends messages."""

        def once() -> Generator[None, None, None]:
            call()
            yield

        scheduler.start(once(), self.fail)

    def _start_edit(self, at: int, data: bytes) -> Edit:
        if not data:
            raise ValueError("there are no bytes to write")
        start, stop = self._region_selection.check_range(at, at + len(data))
        region, before = self._region_selection.require(), None
        if why := why_no_write(region):
            raise AccessDenied(why)
        source = "host" if why_no_dpu(region) else "dpu"
        if source == "dpu" or not why_no_host(region):
            before = self.reader.read(region, (source,), start, stop - start)[0]
        return self._edits.start(region, start, data, before)

    def _edited(self, edit: Edit, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)
        self.broadcast(
            "edited", region=edit.region, at=edit.at, size=len(edit.data), ok=error is None,
            undoable=self._edits.undoable,
        )  # fmt: skip
        if error is None and not self._session.closed:
            self._region_selection.model.written(edit.region)

    def picture(self) -> Picture:
        """Return the bytes in view. The host reads them where it can: a picture moves no bytes."""
        from ..base.picture import Picture

        region = self._region()
        if region is None:
            picture = Picture(f"{self.title}: {self._region_selection.empty_reason}")
            picture.heading(self.title)
            picture.text(self._region_selection.empty_reason)
            return picture
        at = self._at - self._at % 16
        size = min(STATIC_BYTES, region.size - at)
        about = f"{region.name} on {region.where}, {size_text(region.size)}"
        picture = Picture(f"{self.title}: {plural(size, 'byte')} at offset {at:#x} of {about}")
        picture.heading(self.title, self._region_selection.model.state()["label"])
        picture.text(f"{about}; {plural(size, 'byte')} at offset {at:#x}")
        try:
            sources = self.sources[:1] if why_no_host(region) else ["host"]
            data = self.reader.read(region, sources, at, size)[0]
            picture.fixed(hex_lines(data, offset=at))
        except DgkitError as error:
            picture.text(str(error))
        if (chart := self._image.chart()) is not None:
            picture.chart(chart)
        return picture

    def static_html(self) -> str:
        """Return the first bytes of the region as HTML."""
        region = self._region()
        if region is None:
            return card(self.title, [("", self._region_selection.empty_reason)])
        about = [("Region", region.name), ("On", region.where), ("Size", size_text(region.size))]
        try:
            size = min(STATIC_BYTES, region.size)
            data = self.reader.read(region, self.sources[:1], 0, size)[0]
            lines = html.escape("\n".join(hex_lines(data)))
            body = f'<pre style="font-size:12px;overflow:auto">{lines}</pre>'
            about.append(
                ("Shown", f"the first {plural(len(data), 'byte')}; run the cell for the live view")
            )
        except DgkitError as error:
            body = f"<p>{html.escape(str(error))}</p>"
        badge = provider_badge(self._session.dpu.provider)
        return card(self.title, about, badge=badge, body=Html(body))

    def static_text(self) -> str:
        """Return the region's name and size."""
        region = self._region()
        what = repr(region) if region is not None else self._region_selection.empty_reason
        return f"<dgkit.HexView {what}>"


def _within(start: Any, region: SessionRegion) -> int:
    """Return the offset at which a search starts: `start`, or 0 if it is not in the region."""
    return start if type(start) is int and 0 <= start <= region.size else 0
