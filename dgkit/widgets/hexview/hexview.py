"""The bytes of a region, as the DPU reads them and as the host sees them, of any size."""

from __future__ import annotations

import html
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ...errors import AccessDenied, DgkitError
from ...html_cards import Html, card, hex_lines, provider_badge
from ...units import parse_size, size_text
from ..base import scheduler
from ..base.panel import Buffers, Panel, Reply, handler
from .clipboard import DTYPES, MOST, as_form
from .edit import Edit, Edits
from .fetch import SOURCES, Reader, why_no_dpu, why_no_host, why_no_write
from .live_view import Live
from .search import parse_pattern
from .search_task import Hunter
from .selection import Shown

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

__all__ = ["HexView"]

STATIC = 256  # bytes that are shown without a kernel
OPTIONS = {"source": (*SOURCES,), "dtype": ("hex", *DTYPES), "endian": ("little", "big")}


class HexView(Panel):
    """Shows the region that is selected among the session's, or the one given.

    goto(), select(), find() and edit() do from a cell what a person does in the view.
    """

    name = "hexview"
    title = "Memory"
    parts = tuple(f"hexview/{part}" for part in ("values", "grid", "keys", "tools", "box"))

    def __init__(self, session: Session, region: SessionRegion | None = None) -> None:
        self._session = session
        self._options = {name: choices[0] for name, choices in OPTIONS.items()}
        self._at, self._selection = 0, (0, 1)
        self.reader = Reader()
        self._edits = Edits(self._edited, self.fail)
        self._hunter = Hunter(self.reader, self.tell, self.fail)
        self._live = Live(self)
        self._shown = Shown(session, region, self._another)
        self._another()
        super().__init__()
        self._shown.desk.subscribe(self)
        self._shown.desk.listen(self._heard)

    @property
    def sources(self) -> tuple[str, ...]:
        """Whose view of the bytes is shown: `dpu`, `host`, or both."""
        return SOURCES[self._source()]

    def _source(self) -> str:
        """What was chosen, or the only one that there is."""
        region = self.here()
        if region is not None and why_no_host(region):
            return "dpu"
        return "host" if region is not None and why_no_dpu(region) else self._options["source"]

    def here(self) -> SessionRegion | None:
        """The region that is shown, if it is there."""
        return self._shown.here()

    def _another(self) -> None:
        """The region is another one, or none: nothing of the one before is kept."""
        self._at, self._selection = 0, (0, 1)
        self._live.forget()
        self._edits.forget()
        self._hunter.forget()

    def _heard(self, what: str) -> None:
        if what != "written":
            self._shown.heard(what)
            self.tell("state", **self.state())

    def state(self) -> dict[str, Any]:
        """What is shown, and how."""
        return self._shown.state() | self._options | {
            "source": self._source(), "live": self._live.on, "at": self._at,
            "selection": list(self._selection), "hunt": self._hunter.state,
            "undoable": self._edits.undoable,
        }  # fmt: skip

    # What a view asks.

    @handler
    def look(self, view: str, at: int, n: int) -> Reply:
        """The bytes in view, one buffer a source, then one of flags if `flags` (see changes).

        `region` is 0 if it was freed, or is another one by now: the state follows.
        """
        page = self._live.look(str(view), int(at), int(n))
        if page is None:
            return {"region": 0, "at": 0, "size": 0, "sources": 0, "flags": False}, []
        self._at = page.at
        return page.reply()

    @handler
    def seen(self, view: str, on: bool) -> None:
        """A view is seen, still or again (`on`), or it is not: then nothing is read for it."""
        self._live.heard(str(view), bool(on))

    @handler
    def got(self, view: str) -> None:
        """The view has drawn what it was told last, and may be told more."""
        self._live.answered(view)

    @handler
    def show(self, **options: Any) -> None:
        """Sets `source`, `dtype`, `endian` for all views."""
        for name, value in options.items():
            if value not in OPTIONS.get(name, ()):
                raise ValueError(f"{name} is {value!r}, which the hex view does not know")
        self._options.update(options)
        self.tell("state", **self.state())

    @handler
    def choose(self, number: int) -> None:
        """Looks at another region; where the view follows the desk, all panels do."""
        self._shown.choose(number)
        self.tell("state", **self.state())

    @handler
    def mark(self) -> None:
        """All is seen: what changes from now on is marked."""
        self._live.mark()
        self.tell("again")

    @handler
    def watch(self, on: bool) -> None:
        """Looks again at what is in view, at most 20 times a second; views hear of changes."""
        self._live.switch(bool(on))
        self.tell("state", **self.state())

    @handler
    def selected(self, start: int, stop: int) -> None:
        """What a person selected, for a view that is drawn later."""
        self._selection = self._shown.span(start, stop)

    @handler
    def search(self, text: str, kind: str, start: int, backward: bool = False) -> None:
        """Starts to look for `text`, which is `hex` or `text`."""
        self._find(parse_pattern(text, kind), start, backward)

    @handler
    def compare(self, start: int, backward: bool = False, count: bool = False) -> None:
        """Starts to look for where DPU and host differ, or to `count` all such bytes."""
        region = self._shown.must()
        self._hunter.differences(region, _within(start, region), backward, count, self._found)

    @handler
    def stop(self) -> None:
        """Ends a search where it is."""
        self._hunter.cancel()

    @handler
    def copy(self, start: int, stop: int, form: str) -> dict[str, Any]:
        """The bytes as text, at most 1 MiB of them: `copied` says how many of `asked`."""
        start, stop = self._shown.span(start, stop)
        size = min(stop - start, MOST)
        data = self.reader.now(self._shown.must(), self.sources[:1], start, size)[0]
        text = as_form(data, form, self._options["dtype"], self._options["endian"])
        return {"text": text, "copied": size, "asked": stop - start}

    @handler
    def put(self, at: int, buffers: Buffers) -> None:
        """Starts to write what a person typed."""
        self._start_edit(at, bytes(buffers[0]) if buffers else b"")

    @handler
    def undo(self) -> dict[str, Any]:
        """Starts to write back what the last edit replaced."""
        edit = self._edits.undo(self._shown.must())
        return {"at": edit.at, "size": len(edit.data)}

    # What a cell asks.

    def goto(self, offset: int | str) -> None:
        """Shows a byte: its number, or "0x100", "4K", "end". BoundsError: it is not in the region.

        ClosedError: there is no region. ValueError: it is no offset.
        """
        if isinstance(offset, str):
            end = offset.strip().lower() == "end"
            offset = self._shown.must().size - 1 if end else parse_size(offset, least=0)
        self.select(offset, offset + 1)

    def select(self, start: int, stop: int) -> None:
        """Selects the bytes from `start` up to `stop`, and shows them. BoundsError. ClosedError."""
        start, stop = self._shown.span(start, stop)
        self._soon(lambda: self._go(start, stop))

    def find(
        self, pattern: bytes | str, *, start: int | None = None, backward: bool = False
    ) -> None:
        """Starts to look for bytes, or for text as UTF-8, from the selection on (or `start`).

        The views show where it is. ValueError: nothing to look for. ClosedError: no region.
        """
        wanted = pattern if isinstance(pattern, str) else bytes(pattern).hex()
        found = parse_pattern(wanted, "text" if isinstance(pattern, str) else "hex")
        begin = self._selection[0] + (not backward) if start is None else start
        self._shown.must()
        self._soon(lambda: self._find(found, begin, backward))

    def edit(self, offset: int, data: bytes) -> None:
        """Writes bytes by DMA and waits, as typing them does. AccessDenied: it is read-only.

        BoundsError, ClosedError, TransferError, PeerLost, PeerTimeout.
        """
        self._start_edit(offset, bytes(data)).transfer.wait(self._session.timeout)

    def close(self) -> None:
        """Ends the views, a search, and looking at changes."""
        self._live.switch(False)
        self._hunter.cancel()
        self._live.forget()
        super().close()

    # How.

    def _find(self, pattern: bytes, start: int, backward: bool) -> None:
        region = self._shown.must()
        begin = _within(start, region)
        self._hunter.pattern(region, self.sources[:1], pattern, begin, backward, self._found)

    def _found(self, at: int, size: int) -> None:
        self._go(at, at + size)

    def _go(self, start: int, stop: int) -> None:
        self._at, self._selection = start, (start, stop)
        self.tell("go", start=start, stop=stop)

    def _soon(self, call: Callable[[], None]) -> None:
        """From a cell: messages are the frame thread's."""

        def once() -> Generator[None, None, None]:
            call()
            yield

        scheduler.start(once(), self.fail)

    def _start_edit(self, at: int, data: bytes) -> Edit:
        if not data:
            raise ValueError("there is nothing to write")
        start, stop = self._shown.span(at, at + len(data))
        region, before = self._shown.must(), None
        if why := why_no_write(region):
            raise AccessDenied(why)
        source = "host" if why_no_dpu(region) else "dpu"
        if source == "dpu" or not why_no_host(region):
            before = self.reader.now(region, (source,), start, stop - start)[0]
        return self._edits.start(region, start, data, before)

    def _edited(self, edit: Edit, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)
        self.tell(
            "edited", region=edit.region, at=edit.at, size=len(edit.data), ok=error is None,
            undoable=self._edits.undoable,
        )  # fmt: skip
        if error is None and not self._session.closed:
            self._shown.desk.written(edit.region)

    def static_html(self) -> str:
        """The first bytes."""
        region = self.here()
        if region is None:
            return card(self.title, [("", self._shown.nothing)])
        about = [("Region", region.name), ("On", region.where), ("Size", size_text(region.size))]
        try:
            data = self.reader.now(region, self.sources[:1], 0, min(STATIC, region.size))[0]
            lines = html.escape("\n".join(hex_lines(data)))
            body = f'<pre style="font-size:12px;overflow:auto">{lines}</pre>'
            about.append(("Shown", f"the first {len(data)} bytes; run the cell for the live view"))
        except DgkitError as error:
            body = f"<p>{html.escape(str(error))}</p>"
        badge = provider_badge(self._session.dpu.provider)
        return card(self.title, about, badge=badge, body=Html(body))

    def static_text(self) -> str:
        """The region's name and size."""
        region = self.here()
        what = repr(region) if region is not None else self._shown.nothing
        return f"<dgkit.HexView {what}>"


def _within(start: Any, region: SessionRegion) -> int:
    """Where a search begins."""
    return start if type(start) is int and 0 <= start <= region.size else 0
