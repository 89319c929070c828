# SPDX-License-Identifier: Apache-2.0
"""Outputs of a saved notebook for a panel or a container: a card and a picture of its figures.

They are outputs of their own below the view: HTML, and a PNG, which viewers show even for an
untrusted notebook. While the live view is there, the panel's style sheet hides them; where it is
not, dgkit's extension of JupyterLab hides the text "Loading widget...".

A container (HBox, Tab, Output, interact) displays its own view, and below it the cards of all open
panels in it; without panels it is displayed as ipywidgets does.

They are made when the panel is displayed, when a later cell has ended, and when a page asks: before
a notebook is saved, dgkit's extension of JupyterLab sends a message to the kernel's comm with the
target `dgkit.pictures`. The message's `states` maps the id of each output to its state in the page
(from the output's metadata). The reply's `pictures` has those whose state has changed: data and
metadata of each output.
"""

from __future__ import annotations

import base64
import html
import logging
import threading
import time
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

from IPython.core.getipython import get_ipython
from ipywidgets import Box, Output, Widget
from ipywidgets.widgets import widget as registry

from ... import cell_lifetime
from ..._version import DISTRIBUTION
from . import scheduler

if TYPE_CHECKING:
    from bokeh.model import Model
    from IPython.core.interactiveshell import InteractiveShell

    from .page_input import Json

_WAIT_S = 2.0  # after a cell, before the outputs are made in the background
_MARK = {"needs_background": "light"}  # becomes a CSS class of the image, used to hide it
_NO_PICTURE = (  # no path of this machine: the notebook may be published
    f"The figure is not here: it needs Matplotlib, <code>pip install '{DISTRIBUTION}[lab]'</code>."
)
_TARGET = "dgkit.pictures"
_log = logging.getLogger("dgkit.widgets")
_published: weakref.WeakSet[StaticOutput] = weakref.WeakSet()
_renewing: list[scheduler.Task] = []  # at most one


@runtime_checkable
class _Saved(Protocol):
    """A panel, as far as a saved notebook is concerned. The methods are called in any thread.

    Attributes:
        has_figures: The panel may have figures, now or later.
        changes: A number that grows with each change of the figures.
    """

    has_figures: ClassVar[bool]
    model_id: str

    @property
    def closed(self) -> bool: ...
    @property
    def changes(self) -> int: ...
    def static_html(self) -> str: ...
    def static_text(self) -> str: ...
    def static_figures(self) -> list[Model]: ...


class StaticOutput:
    """The outputs of one display of a panel or a container; a later display replaces them.

    Attributes:
        headless: It was displayed by nbclient, so it is renewed at the end of each cell.
    """

    def __init__(self, panels: Callable[[], list[_Saved]]) -> None:
        """Create the outputs without publishing anything; `panels` returns what they show."""
        self._panels = panels
        self._display_id = ""
        self._lock = threading.Lock()  # of what follows
        self._changes: list[int] = []  # of the panels, when their figures were drawn
        self._figures: dict[str, str] = {}
        self._outputs: dict[str, Json] = {}  # data and metadata, by display id
        self.headless = False

    @property
    def published(self) -> bool:
        """Return whether the outputs were published and can be renewed."""
        return bool(self._display_id)

    def publish(self) -> None:
        """Publish the outputs below the running cell's output so far."""
        self._display_id, self._outputs, self._changes = uuid.uuid4().hex, {}, []
        cell, run = cell_lifetime.current_run()
        self.headless = bool(run) and not cell
        self.flush(figures=False)
        _published.add(self)
        _answer_pages()
        cell_lifetime.after_each_cell(_cell_ended)

    def stale(self) -> bool:
        """Return whether the figures have changed since they were drawn."""
        return self._changes != [panel.changes for panel in self._panels()]

    def flush(self, *, figures: bool = True) -> bool:
        """Replace the outputs that have changed; return whether there are any.

        Args:
            figures: Draw the figures, too, if the panels have changed.
        """
        with self._lock:
            if not self._display_id:
                return False
            panels = self._panels()
            changes = [panel.changes for panel in panels]
            try:
                page, text = _page_of(panels), ", ".join(panel.static_text() for panel in panels)
                if figures and changes != self._changes:
                    self._changes, self._figures = changes, _draw(panels)
            except scheduler.PanelClosed:
                return False
            note = f"State of {time.strftime('%Y-%m-%d %H:%M:%S')}"
            card = f'{page}<div style="font-size:11px;opacity:0.75">{note}</div>'
            card = f'<div class="dgkit-saved">{card}</div>'
            changed = self._put(self._display_id, page, {"text/html": card, "text/plain": text})
            if any(panel.has_figures for panel in panels):
                data = self._figures or {"text/html": ""}
                changed |= self._put(f"{self._display_id}-figures", str(data), data)
            return changed

    def _put(self, display_id: str, shown: str, data: dict[str, str]) -> bool:
        """Publish an output if what is shown has changed; return whether it has."""
        from IPython.display import publish_display_data

        mark = {"picture": display_id, "state": f"{zlib.crc32(shown.encode()):08x}"}
        update = display_id in self._outputs
        if update and self._outputs[display_id]["metadata"]["dgkit"] == mark:
            return False
        look = _MARK if "image/png" in data else {}
        output = {"data": data, "metadata": {**look, "dgkit": mark}}
        self._outputs[display_id] = output
        publish_display_data(**output, transient={"display_id": display_id}, update=update)
        return True

    def outputs(self) -> dict[str, Json]:
        """Return `data` and `metadata` of the outputs as last published, by display id."""
        return dict(self._outputs)

    def end(self) -> None:
        """Leave the outputs as they are."""
        with self._lock:
            self._display_id = ""
        _published.discard(self)


def _page_of(panels: list[_Saved]) -> str:
    parts = []
    for panel in panels:
        try:
            parts.append(panel.static_html())
        except scheduler.PanelClosed:
            raise
        except Exception as error:
            _log.error("cannot show a panel in the saved notebook", exc_info=error)
            parts.append(f"<p>{html.escape(panel.static_text())}: run the cell to see it.</p>")
    return "".join(parts)


def _draw(panels: list[_Saved]) -> dict[str, str]:
    """Return the data of the output of the panels' figures; none without figures."""
    try:
        figures = [figure for panel in panels for figure in panel.static_figures()]
        if not figures:
            return {}
        from ..figure.matplotlib_drawing import picture

        image = base64.b64encode(picture(figures)).decode()
        return {"image/png": image, "text/plain": "; ".join(p.static_text() for p in panels)}
    except scheduler.PanelClosed:
        raise
    except ModuleNotFoundError:
        return {"text/html": f"<p>{_NO_PICTURE}</p>"}
    except Exception as error:
        _log.error("cannot draw the figures of a panel", exc_info=error)
        return {"text/html": "<p>There is no picture of this figure: run the cell to see it.</p>"}


def renewed(states: dict[str, str]) -> dict[str, Json]:
    """Renew the published outputs, and return those whose state differs from the page's.

    Args:
        states: The state of each output in the page, by the output's id.

    Returns:
        `data` and `metadata` of the outputs to be replaced, by the output's id.
    """
    found: dict[str, Json] = {}
    for each in list(_published):
        each.flush()
        found |= each.outputs()
    return {
        name: output
        for name, output in found.items()
        if states.get(name, "") not in ("", output["metadata"]["dgkit"]["state"])
    }


def _answer_pages() -> None:
    """Answer pages that request outputs. Idempotent; does nothing without a kernel."""
    import comm

    manager = comm.get_comm_manager()
    if not hasattr(get_ipython(), "kernel") or _TARGET in manager.comms:
        return
    # Not primary: as if a page had opened the comm, so no page is asked to open its side.
    channel = comm.create_comm(target_name=_TARGET, comm_id=_TARGET, primary=False)
    manager.register_comm(channel)

    def answer(message: Json) -> None:
        pictures: dict[str, Json] = {}
        try:
            pictures = renewed(dict(message["content"]["data"]["states"]))
        except Exception as error:
            _log.error("cannot renew the outputs for a page", exc_info=error)
        channel.send({"pictures": pictures})

    channel.on_msg(answer)


def _cell_ended(_result: object = None) -> None:
    """Renew the outputs: at once for nbclient, which ignores later updates, else soon."""
    is_stale = False
    for output in list(_published):
        if output.headless:
            output.flush()
        else:  # a front end that accepts updates at any time
            is_stale = is_stale or output.stale()
    is_renewing = any(not task.done for task in _renewing)
    if is_stale and not is_renewing:
        _renewing[:] = [scheduler.start(_renew_soon(), _renewal_failed)]


def _renew_soon() -> scheduler.Steps:
    yield from scheduler.sleep(_WAIT_S)
    for output in list(_published):
        if output.stale():
            yield from scheduler.in_background(output.flush)


def _renewal_failed(error: Exception) -> None:
    _log.error("cannot renew the outputs of panels", exc_info=error)


Container: TypeAlias = Box | Output
_hooked: weakref.WeakSet[InteractiveShell] = weakref.WeakSet()  # shells
_pictures: weakref.WeakKeyDictionary[Container, ContainerPicture] = weakref.WeakKeyDictionary()
_displayed: weakref.WeakKeyDictionary[Output, list[_Saved]] = weakref.WeakKeyDictionary()


class ContainerPicture:
    """The outputs of a container's panels."""

    def __init__(self, container: Container) -> None:
        self._container = weakref.ref(container)
        self._run = cell_lifetime.current_run()
        self._static = StaticOutput(lambda: list(_panels_in(self._container())))

    def publish(self) -> None:
        """Publish the outputs below the container that the cell displays, if it has panels."""
        if next(_panels_in(self._container()), None) is not None:
            self._static.publish()

    def publish_late(self) -> None:
        """Publish the outputs at the end of the cell if panels were added after the display."""
        if self._run == cell_lifetime.current_run() and not self._static.published:
            self.publish()


def picture_containers() -> None:
    """Make the shell display containers with the pictures of their panels. Idempotent."""
    shell = get_ipython()
    if shell is None or shell in _hooked:
        return
    _hooked.add(shell)
    formatter = shell.display_formatter.ipython_display_formatter
    for kind in (Box, Output):
        formatter.for_type(kind, _display)


def note_displayed(panel: _Saved) -> bool:
    """Record that a panel is displayed; return whether an Output widget has captured that."""
    shell = get_ipython()
    try:
        message = shell.get_parent()["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return False
    widgets = list(getattr(registry, "_instances", {}).values())
    captured = [
        widget for widget in widgets if isinstance(widget, Output) and widget.msg_id == message
    ]
    for output in captured:
        panels = _displayed.setdefault(output, [])
        panels[:] = [*(other for other in panels if other is not panel), panel]
    return bool(captured)


def _display(container: Container) -> None:
    """Display a container and, below it, the picture of its panels."""
    from IPython.display import publish_display_data

    own = getattr(container, "_ipython_display_", None)
    if own is not None:
        own()
    else:
        bundle = container._repr_mimebundle_()
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        if next(_panels_in(container), None) is not None:
            data = {**data, "text/plain": f"<{type(container).__name__}>"}  # without all its traits
        publish_display_data(data, rest[0] if rest else None)
    _pictures[container] = picture = ContainerPicture(container)
    picture.publish()
    cell_lifetime.after_each_cell(_publish_late)


def _publish_late(_result: object = None) -> None:
    """Publish the pictures of containers that the cell displayed before they had panels."""
    for picture in list(_pictures.values()):
        picture.publish_late()


def _panels_in(widget: Widget | _Saved | None) -> Iterator[_Saved]:
    """Iterate over the open panels in a widget, from the first to the last."""
    if isinstance(widget, _Saved):
        if not widget.closed:
            yield widget
    elif isinstance(widget, Box):
        for child in widget.children:
            yield from _panels_in(child)
    elif isinstance(widget, Output):
        yield from (panel for panel in _captured(widget) if not panel.closed)


def _captured(output: Output) -> list[_Saved]:
    """Return the panels that an Output shows; until a page reports them, the last displayed one."""
    panels = _displayed.get(output, [])
    view = "application/vnd.jupyter.widget-view+json"
    shown = {part.get("data", {}).get(view, {}).get("model_id") for part in output.outputs}
    return [panel for panel in panels if panel.model_id in shown] or panels[-1:]
