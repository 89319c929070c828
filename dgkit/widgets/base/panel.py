# SPDX-License-Identifier: Apache-2.0
"""Base class of all panels: calls from a view, errors, and the display without a kernel.

Python holds the state, and a view requests all of it with `hello` when it is drawn. So a reloaded
page loses nothing, and all views show the same. Views do not read the panel's traits (see
`traits`): traits are for cells and for other widgets.

A closed panel keeps its model, which says that it is closed. A container of an earlier output may
refer to the model, and a page that is reloaded loads either all models of the kernel or none.
"""

from __future__ import annotations

import contextlib
import html
import inspect
import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import traitlets

from ... import cell_lifetime
from ...errors import DgkitError
from .error_text import explain
from .esm import link
from .page_input import (
    Buffers,
    Handler,
    Json,
    JsonValue,
    Reply,
    check_fields,
    check_json,
    check_traits,
    reply_id,
)
from .scheduler import PanelClosed
from .static_output import StaticOutput, note_displayed, picture_containers
from .traits import StateWidget

if TYPE_CHECKING:
    from bokeh.model import Model

H = TypeVar("H", bound=Handler)

_RECENT_S, _EXPIRED_S = 60.0, 3600.0
_SLOW_S = 1.0  # between frames for views without a recent report
_MAX_VIEWS, _MAX_NAME = 32, 64  # views remembered, and characters of a view's name

_WIDGETS = Path(__file__).parent.parent
_HAS_TRAITS = frozenset(vars(traitlets.HasTraits()))  # attributes of each instance
_OWN_ATTRIBUTES = {"_on_close", "_static", "_states", "_due"}
_CLOSED_MODULE = """export default { render({ el }) {
  const note = document.createElement("p");
  note.setAttribute("role", "status");
  note.className = "dgkit-closed";
  note.textContent = %s;
  el.replaceChildren(note);
} };
"""
_EXPECTED = (DgkitError, ValueError, TypeError, OSError, traitlets.TraitError)
_snapshots = itertools.count(1)
_close_lock = threading.Lock()  # guards the panels' _closing
_log = logging.getLogger("dgkit.widgets")


def handler(method: H) -> H:
    """Let a view call this method by `call(name, fields, buffers)`.

    The fields are passed as keyword arguments, the buffers as `buffers` if the method has such a
    parameter. The method returns a dict or (dict, buffers), and runs on the kernel's event loop or
    in a subshell of the kernel.
    """
    takes_buffers = "buffers" in inspect.signature(method).parameters
    method._dgkit_handler = "buffers" if takes_buffers else "fields"  # type: ignore[attr-defined]
    return method


class Panel(StateWidget):
    """A widget that renders a part of a session, a diagnosis, a file.

    It is closed when its cell is run again (see `cell_lifetime`), unless another panel made it.

    Attributes:
        name: Name of its package and of its module there (see `esm`).
        title: The heading that the user sees.
        shared: A later run of the cell may return this same panel.
        has_figures: A saved notebook may show figures of it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shared: ClassVar[bool] = False
    has_figures: ClassVar[bool] = False
    _changes: int = 0
    _closing = False

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        module, style = link(_WIDGETS / self.name / f"{self.name}.js")
        own = vars(self).keys() - _HAS_TRAITS
        self._on_close = contextlib.ExitStack()
        self._static = StaticOutput(lambda: [self])
        self._on_close.callback(self._static.end)
        super().__init__(module, style)
        self._widget_attributes = frozenset(vars(self)) - own - _OWN_ATTRIBUTES
        self.on_msg(self._received)
        picture_containers()
        cell_lifetime.register(self, self.close, shared=self.shared)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise PanelClosed for an attribute that close() removed."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if vars(self).get("closed"):
                raise PanelClosed(f"the panel is closed: {text}")
            raise AttributeError(text, name=name, obj=self)

    @property
    def changes(self) -> int:
        """A number that grows with each message to the views."""
        return self._changes

    # Traits

    def set_state(self, sync_data: Json) -> None:
        """Set traits from a page; on a refused value, show the error and send the old value."""
        try:
            check_traits(sync_data)
            super().set_state(sync_data)
        except (traitlets.TraitError, DgkitError, ValueError) as error:
            self.fail(error)
            self.send_state([name for name in sync_data if name in self.keys])

    # State

    def models(self) -> tuple[object, ...]:
        """Return the objects whose handlers a view can call, besides the panel's own."""
        return ()

    def state(self) -> Json:
        """Return everything that a new view draws."""
        return {}

    def state_buffers(self) -> list[bytes]:
        """Return the binary part of the state."""
        return []

    @handler
    def hello(self) -> Reply:
        """Return the whole state to a new view."""
        return {"title": self.title, **self.state()}, self.state_buffers()

    def broadcast(self, kind: str, buffers: Sequence[Any] = (), **fields: Any) -> None:
        """Send a message to all views; no trait changes.

        Call it in a handler or on the frame thread.
        """
        if self.comm is not None and not self.closed:
            self.send({"kind": kind, **fields}, list(buffers))
            if kind != "reply":
                self._changes += 1

    def broadcast_state(self, kind: str, snapshot: Callable[[], Json]) -> None:
        """Send a part of the state to all views, which ignore it if they have a newer one.

        Two threads may send their snapshots in a different order than they took them.

        Args:
            kind: The kind of the message.
            snapshot: Returns the message's fields.
        """
        number = next_snapshot()
        self.broadcast(kind, snapshot=number, **snapshot())

    def fail(self, error: Exception) -> None:
        """Show an error and its remedy in the panel's error strip; a closed panel has none."""
        if self.closed:
            return
        if not isinstance(error, _EXPECTED):
            _log.error("in %s", type(self).__name__, exc_info=error)
        self.broadcast("failed", error=self._explain(error))

    def _explain(self, error: Exception) -> dict[str, str]:
        return explain(error)

    def _received(self, _widget: Panel, content: JsonValue, buffers: Buffers) -> None:
        if not isinstance(content, dict):
            kind = type(content).__name__
            _log.error("%s received an invalid message of type %s", type(self).__name__, kind)
            return
        number, name = reply_id(content.get("id")), content.get("call")
        try:
            check_json(content)
            reply, out = self._call(name, content.get("fields") or {}, buffers)
        except Exception as error:  # the view awaits a reply in every case
            if self.closed:  # meanwhile
                return
            if not isinstance(error, _EXPECTED):
                _log.error("in %s.%s", type(self).__name__, name, exc_info=error)
            self.broadcast("reply", id=number, error=self._explain(error))
            return
        self.broadcast("reply", out, id=number, value=reply)

    def _call(self, name: JsonValue, fields: JsonValue, buffers: Buffers) -> Reply:
        method, accepts = None, ""
        for receiver in (self, *self.models()):
            method = getattr(type(receiver), name, None) if isinstance(name, str) else None
            if accepts := getattr(method, "_dgkit_handler", ""):
                break
        if method is None or not accepts:
            raise ValueError(f"{type(self).__name__} has no handler {name!r}")
        if not isinstance(fields, dict):
            raise ValueError(f"invalid message to the panel: {fields!r}")
        check_fields(method, fields)
        more = {"buffers": buffers} if accepts == "buffers" else {}
        result = method(receiver, **fields, **more)
        return result if isinstance(result, tuple) else (result or {}, [])

    def on_close(self, call: Callable[[], object]) -> None:
        """Call a function when the panel is closed."""
        self._on_close.callback(call)

    def end(self) -> None:
        """End the panel's tasks and free the resources it owns, for close()."""

    def close(self) -> None:
        """Close the panel: its views show that, and its resources are freed. Idempotent.

        Only the attributes of the widget itself remain.
        """
        with _close_lock:
            if self.comm is None or self.closed or self._closing:  # None: the constructor raised
                return
            self._closing = True
        self.on_msg(self._received, remove=True)
        with contextlib.ExitStack() as last_to_first:
            last_to_first.callback(self._release)
            last_to_first.callback(self._on_close.close)
            last_to_first.callback(self.end)

    def _release(self) -> None:
        text = f"{self.title}: this panel was closed. Run its cell for a new one."
        kept = {"closed"} | self._widget_attributes
        self.closed = True  # first: another thread finds the attribute, or a closed panel
        for name in self._states:
            self.unobserve_all(name)
            self._trait_values.pop(name, None)
        for name in self.__dict__.keys() - kept:
            self.__dict__.pop(name, None)
        with self.hold_sync():
            self._esm, self._css = _CLOSED_MODULE % json.dumps(text), ""

    def static_html(self) -> str:
        """Return the HTML shown without a kernel: in a saved notebook, or by nbconvert."""
        return f"<p>{html.escape(self.title)}: run the cell for the live view.</p>"

    def static_text(self) -> str:
        """Return static_html() as plain text."""
        return f"<dgkit.{type(self).__name__}>"

    def static_figures(self) -> list[Model]:
        """Return the Bokeh figures shown without a kernel, below static_html()."""
        return []

    def _ipython_display_(self) -> None:
        """Display the panel and, below it, what a saved notebook shows."""
        self._publish_view()
        self._publish_static()

    def _publish_view(self) -> None:
        from IPython.display import publish_display_data

        bundle = self._repr_mimebundle_()
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        if not self.closed:
            data = {**data, "text/html": ""}  # it is below
        publish_display_data(data, rest[0] if rest else None)
        note_displayed(self)

    def _publish_static(self) -> None:
        if not self.closed:
            self._static.publish()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        cell_lifetime.mark_used(self)
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle or {},)
        page, text = (
            (self.static_html(), self.static_text())
            if not self.closed
            else (
                f"<p>{html.escape(self.title)}: this panel was closed.</p>",
                f"<closed dgkit.{type(self).__name__}>",
            )
        )
        data = {**data, "text/html": page, "text/plain": text}
        return (data, *rest) if rest else data


def next_snapshot() -> int:
    """Return a number for a snapshot taken now: a higher number means a newer state.

    Each change is followed by a snapshot with a new number: the highest one includes all changes.
    """
    return next(_snapshots)


class Viewers:
    """The visible views of a panel, by the time.monotonic() of their last report.

    A view reports when it becomes visible or hidden, and every few seconds while it is visible. A
    closed page reports nothing, and messages to it accumulate in the Jupyter server. But while a
    cell is running, the kernel may not receive the reports of a visible view either. So a view that
    has not reported for a minute gets one frame a second, and none after an hour.
    """

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._drawn = -math.inf

    def update(self, view: str, visible: bool) -> None:
        """Record a view's report that it is visible or hidden.

        Of more than 32 views, the view with the oldest report is dropped until it reports again.
        """
        view = view[:_MAX_NAME]
        self._reported.pop(view, None)
        if visible:
            self._reported[view] = time.monotonic()
            while len(self._reported) > _MAX_VIEWS:
                del self._reported[next(iter(self._reported))]

    def any_recent(self) -> bool:
        """Return whether a view has reported within a minute that it is visible."""
        last = max(self._reported.values(), default=None)
        return last is not None and time.monotonic() - last <= _RECENT_S

    def due(self) -> bool:
        """Return whether to draw a frame now.

        True at each call while a view has reported within a minute, otherwise once a second.
        """
        now = time.monotonic()
        for view, reported in list(self._reported.items()):
            if now - reported > _EXPIRED_S:
                self._reported.pop(view, None)
        last = max(self._reported.values(), default=None)
        if last is None or (now - last > _RECENT_S and now - self._drawn < _SLOW_S):
            return False
        self._drawn = now
        return True
