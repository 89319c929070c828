"""Base class of all panels: calls from a view, errors, and the display without a kernel.

A panel's only traits are its JavaScript module and its style sheet. Python holds the state, and a
view requests all of it with `hello` when it is drawn. So a reloaded page loses nothing, all views
show the same, and a saved notebook contains no state.
"""

from __future__ import annotations

import html
import inspect
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import anywidget
import traitlets

from ...errors import ClosedError, DgkitError
from ...html_cards import provider_label
from . import cell_lifetime
from .error_hints import hint_for

__all__ = ["Buffers", "Panel", "Reply", "handler", "source"]

Buffers = Sequence[memoryview]
Reply = tuple[dict[str, Any], list[bytes]]
F = TypeVar("F", bound=Callable[..., Any])

_WIDGETS = Path(__file__).parent.parent
_log = logging.getLogger("dgkit.widgets")


def handler(method: F) -> F:
    """Let a view call this method by `call(name, fields, buffers)`.

    The fields are passed as keyword arguments, the buffers as `buffers` if the method has such a
    parameter. The method returns a dict or (dict, buffers), and runs on the kernel's event loop or
    in a subshell of the kernel.
    """
    takes_buffers = "buffers" in inspect.signature(method).parameters
    method._dgkit_handler = "buffers" if takes_buffers else "fields"  # type: ignore[attr-defined]
    return method


@cache
def source(name: str, kind: str, parts: tuple[str, ...] = ()) -> str:
    """Return the JavaScript module or the style sheet of a panel.

    Args:
        name: The panel's name.
        kind: `js` or `css`.
        parts: Further files, as `package/stem`.

    Returns:
        The shared file, the parts and the panel's own file, concatenated; missing ones are skipped.
    """
    files = [_WIDGETS / f"{stem}.{kind}" for stem in ("base/panel", *parts, f"{name}/{name}")]
    return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


class Panel(anywidget.AnyWidget):
    """A widget that renders a session.

    It is closed when its cell is run again (see `cell_lifetime`), unless another panel made it.

    Attributes:
        name: Name of its package and of its .js and .css files.
        title: The heading that the user sees.
        parts: Further files of its module and style sheet: `hexview/grid`.
        shared: A later run of the cell may return this same panel.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    parts: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[bool] = False

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        module, style = (source(self.name, kind, self.parts) for kind in ("js", "css"))
        super().__init__(_esm=module, _css=style)
        self.on_msg(self._received)
        cell_lifetime.register(self)

    def state(self) -> dict[str, Any]:
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
        if self.comm is not None:
            self.send({"kind": kind, **fields}, list(buffers))

    def fail(self, error: Exception) -> None:
        """Show an error and its remedy in the panel's error strip."""
        if not isinstance(error, (DgkitError, ValueError, TypeError, OSError)):
            _log.error("in %s", type(self).__name__, exc_info=error)
        self.broadcast("failed", error=explain(error))

    def _received(self, _widget: object, content: Any, buffers: Buffers) -> None:
        if not isinstance(content, dict):
            _log.error("%s received an invalid message: %r", type(self).__name__, content)
            return
        number, name = content.get("id"), content.get("call")
        try:
            reply, out = self._call(name, content.get("fields") or {}, buffers)
        except Exception as error:  # the view awaits a reply in every case
            if not isinstance(error, (DgkitError, ValueError, TypeError, OSError)):
                _log.error("in %s.%s", type(self).__name__, name, exc_info=error)
            self.broadcast("reply", id=number, error=explain(error))
            return
        self.broadcast("reply", out, id=number, value=reply)

    def _call(self, name: Any, fields: Any, buffers: Buffers) -> Reply:
        method = getattr(type(self), name, None) if isinstance(name, str) else None
        accepts = getattr(method, "_dgkit_handler", "")
        if method is None or not accepts:
            raise ValueError(f"{type(self).__name__} has no handler {name!r}")
        if not isinstance(fields, dict):
            raise ValueError(f"invalid message to the panel: {fields!r}")
        if accepts == "buffers":
            fields = {**fields, "buffers": buffers}
        result = method(self, **fields)
        return result if isinstance(result, tuple) else (result or {}, [])

    def close(self) -> None:
        """Close the panel and its views. Idempotent."""
        if self.comm is None:
            return
        self.on_msg(self._received, remove=True)
        super().close()
        self.layout.close()  # ipywidgets would keep it for the life of the kernel

    def static_html(self) -> str:
        """Return what is shown without a kernel: in an untrusted notebook, or by nbconvert."""
        return f"<p>{html.escape(self.title)}: run the cell for the live view.</p>"

    def static_text(self) -> str:
        """Return the same as plain text."""
        return f"<dgkit.{type(self).__name__}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        cell_lifetime.mark_used(self)
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle or {},)
        data = {**data, "text/html": self.static_html(), "text/plain": self.static_text()}
        return (data, *rest) if rest else data


def explain(error: Exception) -> dict[str, str]:
    """Describe an exception for a view.

    Returns:
        `kind` (class name), `text`, `hint` (the remedy, see `hint_for`) and `field` (the form field
        that it belongs to, see `forms.for_field`); the last two are empty if there is none.
    """
    text = " ".join(str(getattr(error, "words", error)).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    if isinstance(error, TypeError) and "argument" in text and "handler" not in text:
        text = f"invalid message to the panel: {text}"
    field = str(getattr(error, "field", ""))
    return {"kind": type(error).__name__, "text": text, "hint": hint_for(error), "field": field}


def label_of(session: Any) -> dict[str, Any]:
    """Return the provider that moves the bytes and its label: `hardware` or `software DPU...`.

    Raises:
        ClosedError: The session is closed.
    """
    if session.closed:
        raise ClosedError("the session is closed")
    provider = session.info["dpu"]["provider"]
    return {"provider": provider, "label": provider_label(provider)}
