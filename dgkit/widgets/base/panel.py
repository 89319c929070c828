"""What all panels share: how a view asks, how an error reaches it, what is shown without a kernel.

A panel has no traits but its module and its style: Python holds the state, and a view asks for all
of it by `hello` when it is drawn. So a page that is reloaded loses nothing, several views agree,
and a saved notebook holds none of it.
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
    """Lets a view call this method by `call(name, fields, buffers)`.

    Its keywords are the fields, and `buffers` if it has a parameter of that name; it returns a
    dict, or (dict, buffers). It runs in the kernel's loop or in a subshell of it.
    """
    takes = "buffers" in inspect.signature(method).parameters
    method._dgkit_handler = "buffers" if takes else "fields"  # type: ignore[attr-defined]
    return method


@cache
def source(name: str, kind: str, parts: tuple[str, ...] = ()) -> str:
    """The module (`js`) or the style (`css`) of a panel: what all share, its parts, its own."""
    files = [_WIDGETS / f"{stem}.{kind}" for stem in ("base/panel", *parts, f"{name}/{name}")]
    return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


class Panel(anywidget.AnyWidget):
    """A widget that shows a session. `name` is that of its package, .js and .css; `title` is for
    people. `parts` are what its module and style have in files of their own: `hexview/grid`.

    It is closed when its cell is run again (see cells), unless another panel made it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    parts: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[bool] = False  # a cell that runs again may get the same one again

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        module, style = (source(self.name, kind, self.parts) for kind in ("js", "css"))
        super().__init__(_esm=module, _css=style)
        self.on_msg(self._received)
        cell_lifetime.register(self)

    def state(self) -> dict[str, Any]:
        """All that a new view draws."""
        return {}

    def state_buffers(self) -> list[bytes]:
        """The binary part of state()."""
        return []

    @handler
    def hello(self) -> Reply:
        """A view was drawn: the whole state."""
        return {"title": self.title, **self.state()}, self.state_buffers()

    def broadcast(self, kind: str, buffers: Sequence[Any] = (), **fields: Any) -> None:
        """Sends a message to all views. From a handler or the frame thread; no trait changes."""
        if self.comm is not None:
            self.send({"kind": kind, **fields}, list(buffers))

    def fail(self, error: Exception) -> None:
        """Shows an error in the panel's own strip, in words, with what to do."""
        if not isinstance(error, (DgkitError, ValueError, TypeError, OSError)):
            _log.error("in %s", type(self).__name__, exc_info=error)
        self.broadcast("failed", error=explain(error))

    def _received(self, _widget: object, content: Any, buffers: Buffers) -> None:
        if not isinstance(content, dict):
            _log.error("%s was sent %r, which is no call", type(self).__name__, content)
            return
        number, name = content.get("id"), content.get("call")
        try:
            reply, out = self._call(name, content.get("fields") or {}, buffers)
        except Exception as error:  # a view that waits hears of everything
            if not isinstance(error, (DgkitError, ValueError, TypeError, OSError)):
                _log.error("in %s.%s", type(self).__name__, name, exc_info=error)
            self.broadcast("reply", id=number, error=explain(error))
            return
        self.broadcast("reply", out, id=number, value=reply)

    def _call(self, name: Any, fields: Any, buffers: Buffers) -> Reply:
        method = getattr(type(self), name, None) if isinstance(name, str) else None
        takes = getattr(method, "_dgkit_handler", "")
        if method is None or not takes:
            raise ValueError(f"{type(self).__name__} has no handler {name!r}")
        if not isinstance(fields, dict):
            raise ValueError(f"a message that the panel does not know: {fields!r}")
        if takes == "buffers":
            fields = {**fields, "buffers": buffers}
        made = method(self, **fields)
        return made if isinstance(made, tuple) else (made or {}, [])

    def close(self) -> None:
        """Ends the views. What the panel started ends, too. Again: nothing."""
        if self.comm is None:
            return
        self.on_msg(self._received, remove=True)
        super().close()
        self.layout.close()  # ipywidgets keeps it for ever

    def static_html(self) -> str:
        """What is seen without a kernel: in an untrusted notebook, on a page, by nbconvert."""
        return f"<p>{html.escape(self.title)}: run the cell for the live view.</p>"

    def static_text(self) -> str:
        """The same as plain text."""
        return f"<dgkit.{type(self).__name__}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        cell_lifetime.mark_used(self)
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle or {},)
        data = {**data, "text/html": self.static_html(), "text/plain": self.static_text()}
        return (data, *rest) if rest else data


def explain(error: Exception) -> dict[str, str]:
    """An exception as a view shows it: `kind`, `text`, `way_out`: what to do about it, and `field`:
    which field of a form it is about, if any (see forms.for_field)."""
    text = " ".join(str(getattr(error, "words", error)).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    if isinstance(error, TypeError) and "argument" in text and "handler" not in text:
        text = f"a message that the panel does not know: {text}"
    field = str(getattr(error, "field", ""))
    return {"kind": type(error).__name__, "text": text, "hint": hint_for(error), "field": field}


def label_of(session: Any) -> dict[str, Any]:
    """Which provider moves the bytes, and what that is; ClosedError says that none does."""
    if session.closed:
        raise ClosedError("the session is closed")
    provider = session.info["dpu"]["provider"]
    return {"provider": provider, "label": provider_label(provider)}
