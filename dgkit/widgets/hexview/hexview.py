# SPDX-License-Identifier: Apache-2.0
"""The hex view panel: the bytes of a region of any size, as DPU and host see them."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

from ipywidgets import ValueWidget

from ... import html_cards
from ...errors import DgkitError
from ...units import parse_size, plural, size_text
from ..base import scheduler
from ..base.panel import handler
from ..base.session_model import SessionPanel
from ..base.traits import State, choose_region, in_own_thread, region_id
from .edit import Edit, EditHistory, edit_lines, edit_row
from .fetch import DIGESTS, Reader, why_no_host
from .image import RegionImage
from .matchers import parse_wanted
from .overview import Overview
from .region_scan import ShownBytes
from .search import SearchTask
from .selection import MAX_COPY, Options, RegionSelection, SelectedBytes, format_bytes
from .structure import StructureView
from .time_machine import TimeMachine
from .view_pages import LiveView, Page

if TYPE_CHECKING:
    from bokeh.model import Model

    from ...session import Session, SessionRegion
    from ..base.page_input import Buffers, Json, JsonValue, Reply
    from .structure import Source


_STATIC_BYTES = 256  # in a saved notebook


class HexView(SessionPanel, ValueWidget):  # type: ignore[misc]
    """Hex view of the region selected in the session, or of the given one.

    goto(), select(), find() and edit() do the same from a cell as the controls of the panel. Since
    the panel is a widget with a value, it can be an argument of ipywidgets.interact().

    With `history`, the view has a slider over the session's last writes to the region: the bytes as
    they were, coloured by who wrote them. A change that no transfer of the session reported, such
    as a store of the CPU, is shown as changed outside, once the view has read it. Of a region that
    is more than half as large as the history, bytes that no view showed before their write are
    unknown. Fields, image and overview always show the bytes of now. An array of more than 64 KiB
    is not copied: the history begins again behind its write (`bytes` of any size are kept).

    Attributes:
        region: The region shown, or None. A view that was made without a region selects the
            assigned one in all panels of the session.
        offset: The byte to which the views were scrolled last; assigning it scrolls them.
        selection: The selected bytes, as (start, stop) with the offset after the last; assigning
            it scrolls the views to them.
        value: The bytes of the selection, its first 64 KiB at most; read-only. They are read again
            when a panel writes to the region, and with each change that live viewing shows.
        columns: Bytes per row: 8, 16, 32 or 64; 0 for 16, or 8 if the width is too small.
        source: What is shown: `dpu` (read by DMA), `host` or `both`.
        structure: A structure laid over the bytes, whose fields are listed and coloured: a
            ctypes.Structure class, a structured NumPy dtype, a dict such as
            `{"magic": "u32", "name": "char[16]"}`, or None: that of the region's array, if
            its dtype has fields.
        structure_offset: The offset of its first byte.
        image: The region as an image, a pixel per item: a dict of `dtype` (`u8`, `i16`, `f32`, ...;
            "": that of the region's array), `width` (items per row; 0: those of the array, or a
            power of two), `palette` (`viridis`, `inferno`, `grey`) and `offset` (of the first row),
            all optional, or None.
        history: The memory for the last writes to the region, from when the view first shows it: a
            size such as "64M", or None. The oldest fall out.
    """

    name = "hexview"
    title = "Memory"
    has_figures = True

    _options: Options
    _selection: RegionSelection
    _selected: SelectedBytes
    _structure: StructureView
    _image: RegionImage
    _past: TimeMachine

    region: State[HexView, SessionRegion | None] = State(
        lambda panel: panel._selection.current(),
        lambda panel, value: panel._assign_region(value),
        to_json=region_id,
        help="The region shown, or None.",
    )
    offset: State[HexView, int] = State(
        lambda panel: panel._selection.offset,
        lambda panel, value: panel._assign_offset(value),
        help="The byte to which the views were scrolled last.",
    )
    selection: State[HexView, tuple[int, int]] = State(
        lambda panel: panel._selection.span,
        lambda panel, value: panel._assign_selection(value),
        help="The selected bytes: (start, stop).",
    )
    value: State[HexView, bytes] = State(
        lambda panel: panel._selected.data,
        freshen=lambda panel: panel._selected.freshen(),
        help="The bytes of the selection, its first 64 KiB at most. Read-only.",
    )
    columns: State[HexView, int] = State(
        lambda panel: panel._options["columns"],
        lambda panel, value: panel.show(columns=value),
        help="Bytes per row: 8, 16, 32 or 64; 0 for 16 or 8, as the width allows.",
    )
    source: State[HexView, str] = State(
        lambda panel: panel._options.source(panel._selection.current()),
        lambda panel, value: panel._assign_source(value),
        help="What is shown: dpu (read by DMA), host or both.",
    )
    structure: State[HexView, Source | None] = State(
        lambda panel: panel._structure.described_by,
        lambda panel, value: panel._structure.assign(value),
        to_json=lambda value: None if value is None else str(value),
        help="The structure laid over the bytes: a ctypes class, a dtype, a dict or None.",
    )
    structure_offset: State[HexView, int] = State(
        lambda panel: panel._structure.offset,
        lambda panel, value: panel._structure.place_structure(value),
        help="The offset of the structure's first byte.",
    )
    image: State[HexView, Json | None] = State(
        lambda panel: panel._image.setting,
        lambda panel, value: panel._image.assign(value),
        help="The region as an image: dtype, width, palette and offset, or None.",
    )
    history: State[HexView, int | str | None] = State(
        lambda panel: panel._past.budget,
        lambda panel, value: panel._assign_history(value),
        help="Bytes of memory for the last writes to the region, or None.",
    )

    def __init__(
        self,
        session: Session,
        region: SessionRegion | None = None,
        *,
        history: int | str | None = None,
    ) -> None:
        self._session = session
        self._options = Options()
        self._selection = selection = RegionSelection(session, region, self._forget_region)
        self.reader = reader = Reader()
        self._edits = EditHistory(self._edited, self.fail)
        sources = lambda: self.sources  # noqa: E731
        self._search = SearchTask(
            reader, selection, sources, send=self.broadcast, fail=self.fail, on_match=self._on_match
        )
        self._selected = SelectedBytes(reader, selection, sources, self.refresh_traits)
        self._live = LiveView(
            reader, selection.current, sources, self._send_page, self._live_failed
        )
        shown = ShownBytes(
            reader, selection.current, sources, lambda: self._live.on, self.broadcast, self.fail
        )
        self._overview = Overview(shown)
        self._image = RegionImage(shown, lambda: self._options["endian"], self._changed)
        self._structure = StructureView(
            reader, selection.current, lambda: self.sources[0], self._changed
        )
        self._past = TimeMachine(
            selection, reader, sources, history, self.broadcast_state, self.fail
        )
        super().__init__()
        selection.model.subscribe(self)
        self.on_close(selection.model.listen(self._session_changed, "regions", "select"))
        self.on_close(selection.model.listen(self._bytes_written, "written"))
        self.on_close(selection.model.add_byte_view(self._show_bytes))
        self.on_close(self._past.end)
        self._past.begin()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the bytes shown: `dpu`, `host`, or both."""
        return self._options.sources(self._selection.current())

    def models(self) -> tuple[object, ...]:
        """Return the objects besides the panel whose handlers a view can call."""
        return self._search, self._structure, self._overview, self._image, self._past

    def _changed(self) -> None:
        """Send the state to all views, and refresh the traits."""
        self.broadcast_state("state", self.state)
        self.refresh_traits()

    def _forget_region(self) -> None:
        """Discard everything that belongs to the previous region."""
        self._live.reset()
        self._edits.clear()
        self._search.reset()
        self._overview.reset()
        self._image.reset()
        self._structure.region_changed()

    def _session_changed(self, change: str) -> None:
        self._selection.session_changed(change)
        self._past.begin()
        self.broadcast_state("state", self.state)
        self._update_traits()

    def _bytes_written(self, _change: str) -> None:
        self._selected.stale = True
        self._overview.renew()
        self._image.renew()
        if self._value_awaited:
            self._read_value()

    # Traits.

    def _assign_region(self, value: SessionRegion | int | str) -> None:
        if value is not self._selection.current():  # also None: linked panels may have no region
            live = self._selection.model.regions
            self.choose(choose_region(self._session, value, live))

    def _assign_offset(self, value: int) -> None:
        self._selection.scroll_to(value)
        self.broadcast("scroll", at=value)

    def _assign_selection(self, value: tuple[int, int]) -> None:
        try:
            start, stop = value
        except (TypeError, ValueError):
            raise ValueError(f"selection is {value!r}; it must be (start, stop)") from None
        wanted = self._selection.check_range(start, stop)
        if wanted != self._selection.span:
            self._go(*wanted)

    def _assign_source(self, value: str) -> None:
        self._options.check_source(self._selection.current(), value)
        self.show(source=value)

    def _assign_history(self, value: int | str | None) -> None:
        self._past.assign(value)
        self._changed()

    def _update_traits(self) -> None:
        """Refresh the traits; read the selected bytes if a view or an observer awaits them."""
        self._selected.stale = True
        if self._value_awaited:
            self._read_value()
        else:
            self.refresh_traits()

    @property
    def _value_awaited(self) -> bool:
        """True if a view or an observer awaits the selected bytes."""
        return self._live.viewed or bool(self._trait_notifiers.get("value", {}).get("change"))

    def _read_value(self) -> None:
        """Read the selected bytes now, or soon on the frame thread; then refresh the traits."""
        if in_own_thread():
            self._selected.read_later()
        else:
            self._selected.freshen()
            self.refresh_traits()

    def _take_value(self, page: Page) -> None:
        """Take the selected bytes from a page that was read, if it contains them."""
        if self._selected.take(page):
            self.refresh_traits()
        else:
            self._update_traits()

    def state(self) -> Json:
        """Return the shown region, the options, the selection and the search."""
        region = self._selection.current()
        return self._selection.state() | self._options.values | {
            "source": self._options.source(region), "live": self._live.on,
            "at": self._selection.at,
            "selection": list(self._selection.span), "search": self._search.state,
            "undoable": self._edits.undoable, "redoable": self._edits.redoable,
            "structure": self._structure.state(),
            "image": self._image.setting, "history": self._past.state(),
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
            nothing = {"region": 0, "at": 0, "size": 0, "sources": 0}
            return nothing | {"flags": False, "hues": False}, []
        if page.at != self._selection.at:
            self._selection.at = page.at
            self._changes += 1
        if scrolled:
            self._selection.offset = page.at
            self.refresh_traits()
        if self._selected.stale:
            self._take_value(page)
        return self._past.apply(page).reply()

    @handler
    def visible(self, view: str, on: bool) -> None:
        """Record that a view is visible or hidden; nothing is read for hidden views."""
        self._live.set_visible(str(view), bool(on))
        self._overview.set_visible(str(view), bool(on))
        self._image.set_visible(str(view), bool(on))

    @handler
    def ack(self, view: str) -> None:
        """Record that a view has drawn the last page, so that the next can be sent."""
        self._live.acknowledge(view)

    @handler
    def show(self, **options: JsonValue) -> None:
        """Set `source`, `dtype`, `endian`, `columns` and `overview_of` for all views."""
        self._options.change(options)
        self.broadcast_state("state", self.state)
        if "source" in options:
            self._overview.reset()
        if "source" in options or "endian" in options:
            self._image.renew(urgent=True)
        self._update_traits()

    @handler
    def choose(self, number: int) -> None:
        """Show the region with this id; a view that follows the session selects it everywhere."""
        self._selection.choose(number)
        self._past.begin()
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
        self._selection.span = self._selection.check_range(start, stop)
        self._update_traits()

    @handler
    def copy(self, start: int, stop: int, form: str) -> Json:
        """Return bytes as text, at most 1 MiB of them: `copied` of the `asked` bytes.

        The form "edits" gives the region's `edits` as Python code; a digest is of all bytes.
        """
        start, stop = self._selection.check_range(start, stop)
        region = self._selection.require()
        if form == "edits":
            changes = self._edits.changes(region)
            return {"text": edit_lines(region, changes), "edits": len(changes)}
        if form in DIGESTS:
            text = self.reader.digest(region, self.sources[0], start, stop - start, form)
            return {"text": text, "copied": stop - start, "asked": stop - start}
        size = min(stop - start, MAX_COPY)
        data = self.reader.read(region, self.sources[:1], start, size)[0]
        text = format_bytes(data, form, self._options["dtype"], self._options["endian"])
        return {"text": text, "copied": size, "asked": stop - start}

    @handler
    def put(self, at: int, buffers: Buffers) -> None:
        """Start to write typed bytes."""
        self._start_edit(at, bytes(buffers[0]) if buffers else b"")

    @handler
    def edits(self) -> Json:
        """Return the edits that can be undone: see edit_row()."""
        changes = self._edits.changes(self._selection.require())
        return {"edits": [edit_row(change) for change in changes]}

    @handler
    def undo(self) -> Json:
        """Start to write back the bytes that the last edit replaced."""
        change = self._edits.undo(self._selection.require()).change
        return {"at": change.at, "size": len(change.after)}

    @handler
    def redo(self) -> Json:
        """Start to make the edit again that was undone last."""
        change = self._edits.redo(self._selection.require()).change
        return {"at": change.at, "size": len(change.after)}

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
            last = self._selection.require().size - 1
            offset = last if end else parse_size(offset, least=0)
        self.select(offset, offset + 1)

    def select(self, start: int, stop: int) -> None:
        """Select the bytes from `start` up to, not including, `stop`, and scroll to them.

        Raises:
            TypeError: An offset is not an int.
            BoundsError: The range is not in the region.
            ClosedError: No region is shown.
        """
        start, stop = self._selection.check_range(start, stop)
        self._go(start, stop)

    def find(
        self, pattern: bytes | str, *, kind: str = "text", start: int | None = None,
        backward: bool = False,
    ) -> None:  # fmt: skip
        """Start a search; the views scroll to the match.

        Args:
            pattern: Bytes, or a str of a kind.
            kind: What a str is: "text", to be encoded as UTF-8; "regex", a regular expression that
                matches up to 256 bytes, as r"\\x00[a-z]+"; "hex", bytes as digits of which `?`
                is any: "00 ff ?? 1?"; "value", an aligned value of the type and byte order shown,
                or a range of them: "7", "0x40", "1.5..2".
            start: The offset at which to start; without it, the selection.
            backward: Search towards lower offsets.

        Raises:
            ValueError: The pattern is empty, too long, or not of the kind.
            ClosedError: No region is shown.
        """
        if not isinstance(pattern, str):
            pattern, kind = bytes(pattern).hex(), "hex"
        wanted = parse_wanted(pattern, kind, self._options["dtype"], self._options["endian"])
        begin = self._selection.span[0] + (not backward) if start is None else start
        self._selection.require()
        self._on_frame_thread(lambda: self._search.find(wanted, begin, backward))

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
        self._selected.end()

    # Implementation.

    def _send_page(self, view: str, page: Page) -> None:
        about, buffers = self._past.apply(page).reply()
        self.broadcast("bytes", buffers, view=view, **about)
        if (fields := self._structure.of_page(page)) is not None:
            self.broadcast("fields", **fields)
        self._take_value(page)

    def _live_failed(self, error: Exception) -> None:
        self.fail(error)
        self.broadcast_state("state", self.state)

    def _on_match(self, at: int, size: int) -> None:
        self._go(at, at + size)

    def _go(self, start: int, stop: int) -> None:
        self._selection.go(start, stop)
        self.broadcast("goto", start=start, stop=stop)
        self._update_traits()

    def _show_bytes(self, number: int, start: int, stop: int) -> bool:
        """Scroll to bytes that another panel names, if they belong to the shown region."""
        region = self._selection.current()
        if region is None or region.id != number:
            return False
        self._go(start, min(stop, region.size))
        return True

    def _on_frame_thread(self, call: Callable[[], None]) -> None:
        """Run a cell's call on the frame thread, the only thread that sends messages."""

        def once() -> scheduler.Steps:
            call()
            yield

        scheduler.start(once(), self.fail)

    def _start_edit(self, at: int, data: bytes) -> Edit:
        if not data:
            raise ValueError("there are no bytes to write")
        start, _ = self._selection.check_range(at, at + len(data))
        return self._edits.write(self._selection.require(), start, data, self.reader)

    def _edited(self, edit: Edit, error: Exception | None) -> None:
        change = edit.change
        if error is not None:
            self.fail(error)
        self.broadcast(
            "edited", region=change.region, at=change.at, size=len(change.after), ok=error is None,
            undoable=self._edits.undoable, redoable=self._edits.redoable,
        )  # fmt: skip
        if error is None and not self._session.closed:
            self._selection.model.written(change.region)

    def static_html(self) -> str:
        """Return the bytes in view as a card. The host reads them if it can: without a DMA."""
        region = self._selection.current()
        if region is None:
            return html_cards.card(self.title, [("", self._selection.empty_reason)])
        at = self._selection.at - self._selection.at % 16
        size = min(_STATIC_BYTES, region.size - at)
        shown = f"{plural(size, 'byte')} at offset {at:#x}; run the cell for the live view"
        about = [
            ("Region", region.name), ("On", region.where), ("Size", size_text(region.size)),
            ("Shown", shown),
        ]  # fmt: skip
        try:
            source = self.sources[:1] if why_no_host(region) else ("host",)
            data = self.reader.read(region, source, at, size)[0]
            lines = html.escape("\n".join(html_cards.hex_lines(data, offset=at)))
            body = f'<pre style="font-size:12px;overflow:auto">{lines}</pre>'
        except DgkitError as error:
            body = f"<p>{html.escape(str(error))}</p>"
        badge = html_cards.provider_badge(self._session.dpu.provider, self._session.dpu.emulated)
        return html_cards.card(self.title, about, badge=badge, body=html_cards.Html(body))

    def static_figures(self) -> list[Model]:
        """Return the image, if it is shown."""
        figure = self._image.figure()
        return [] if figure is None else [figure]

    def static_text(self) -> str:
        """Return the region's name and size."""
        region = self._selection.current()
        what = repr(region) if region is not None else self._selection.empty_reason
        return f"<dgkit.HexView {what}>"
