"""The static picture in an output: published with a panel or a container, and renewed.

A container (HBox, Tab, Output, interact) displays its own view, and below it one picture of all
open panels in it; without panels it is displayed as ipywidgets does.

The picture is a second output, a PNG, which every notebook viewer shows, even for an untrusted
notebook. While the live view is there, the panel's style sheet hides it.

Before a notebook is saved, dgkit's extension of JupyterLab requests the current pictures with a
message to the kernel's comm with the target `dgkit.pictures`. The message's `states` maps each
picture id to the state of that picture in the page (from the output's metadata). The reply's
`pictures` has those whose state has changed: data and metadata of each output.
"""

from __future__ import annotations

import base64
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from IPython.core.getipython import get_ipython
from ipywidgets import Box, Output
from ipywidgets.widgets import widget as registry

from ... import cell_lifetime
from . import scheduler
from .scheduler import in_background

if TYPE_CHECKING:
    from .picture import Picture

_INTERVAL_S = 2.0  # minimum between two pictures of a panel
_LIVE_INTERVAL_S = 10.0  # the same, while the state changes continuously
_MARK = {"needs_background": "light"}  # becomes a CSS class of the image, used to hide it
# Hides JupyterLab's "Loading widget..." and "model not found" where a picture follows. Only for
# trusted notebooks: in others the view's text is shown instead.
_STYLE = """<style class="dgkit-static">
.jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output):not(:has(> div > *)):has(
  + .jp-OutputArea-child > .jp-RenderedImage > img.jp-needs-light-background),
.jp-OutputArea-child:has(> .jp-OutputArea-output > style.dgkit-static) { display: none }
</style>"""
_TARGET = "dgkit.pictures"
_log = logging.getLogger("dgkit.widgets")
_published: weakref.WeakSet[StaticOutput] = weakref.WeakSet()


class Pictured:
    """A widget with a static picture, which the picture of a container or panel may include.

    Attributes:
        title: The heading that the user sees.
        closed: The widget was closed.
        model_id: The id of its model in a page.
    """

    title: ClassVar[str]
    closed = False
    model_id: str

    def picture(self) -> Picture:
        """Return the last state as a static picture. Called in any thread."""
        raise NotImplementedError

    def hosted_by(self, host: Any) -> None:
        """Also renew the picture of another panel or a container that contains this one."""
        raise NotImplementedError


class StaticOutput:
    """The picture of one display of a panel or a container; a later display replaces it.

    Attributes:
        headless: It was displayed by nbclient, so it is renewed at the end of each cell.
    """

    def __init__(self, draw: Callable[[], Picture]) -> None:
        """Create the output without publishing anything.

        Args:
            draw: Returns the picture. Called in any thread.
        """
        self._draw = draw
        self._display_id = ""
        self._task: scheduler.Task | None = None
        self._published = 0.0
        self._due = 0.0
        self.headless = False
        self._state = ""  # state of the picture that was published last
        self._output: dict[str, Any] = {}

    @property
    def published(self) -> bool:
        """Return whether the picture was published and can be renewed."""
        return bool(self._display_id)

    def publish(self) -> None:
        """Publish the picture below the running cell's output so far."""
        from IPython.display import publish_display_data

        self._display_id = uuid.uuid4().hex
        cell, run = cell_lifetime.current_run()
        self.headless = bool(run) and not cell
        self._state = ""
        self.flush()
        publish_display_data({"text/html": _STYLE})
        _published.add(self)
        _answer_pages()
        cell_lifetime.after_each_cell(_renew_for_headless)

    def renew(self, *, live: bool = False) -> None:
        """Have the frame thread replace the picture soon, if it was published and has changed.

        Args:
            live: The state changes continuously: every 10 s is enough.
        """
        due = self._published + (_LIVE_INTERVAL_S if live else _INTERVAL_S)
        if not self._display_id or self.headless:
            return
        if self._task is None or self._task.done:
            self._due = due
            self._task = scheduler.start(self._renew(), self._failed)
        else:
            self._due = min(self._due, due)
            self._task.hasten(self._due)

    def flush(self) -> bool:
        """Replace the picture now if it has changed; return whether it has."""
        return self._publish(self._drawn())

    def output(self) -> dict[str, Any]:
        """Return `data` and `metadata` of the output as last published."""
        return self._output

    def end(self) -> None:
        """Stop renewing the picture and leave it as it is."""
        self._display_id = ""
        _published.discard(self)
        if self._task is not None:
            self._task.cancel()

    def _renew(self) -> scheduler.Steps:
        while time.monotonic() < self._due:
            yield self._due  # renew() may set an earlier time
        drawn = yield from in_background(self._drawn)
        self._publish(drawn)

    def _drawn(self) -> tuple[str, dict[str, Any]] | None:
        """Draw the picture; if that fails, log why and draw a note instead.

        Returns:
            The picture's state and the data of the output; None if its state was published last.
        """
        from .picture import Picture

        note = f"State of {time.strftime('%Y-%m-%d %H:%M:%S')}"
        try:
            drawing = self._draw().drawn(note)
        except Exception as error:
            self._failed(error)
            picture = Picture("no static picture")
            picture.text("There is no static picture of this output: run the cell to see it.")
            drawing = picture.drawn(note)
        if drawing.state == self._state:
            return None
        image = base64.b64encode(drawing.png()).decode()
        return drawing.state, {"image/png": image, "text/plain": drawing.alt}

    def _publish(self, drawn: tuple[str, dict[str, Any]] | None) -> bool:
        from IPython.display import publish_display_data

        if drawn is None or not self._display_id:
            return False
        state, data = drawn
        update, self._state = bool(self._state), state
        self._published = time.monotonic()
        mark = {"picture": self._display_id, "state": state}
        self._output = {"data": data, "metadata": {**_MARK, "dgkit": mark}}
        publish_display_data(
            **self._output, transient={"display_id": self._display_id}, update=update
        )
        return True

    def _failed(self, error: Exception) -> Any:
        _log.error("cannot draw the picture of a panel", exc_info=error)


def renewed(states: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Renew the published pictures, and return those whose state differs from the page's.

    Args:
        states: The state of each picture in the page, by the picture's id.

    Returns:
        `data` and `metadata` of the outputs to be replaced, by the picture's id.
    """
    outputs = []
    for one in list(_published):
        one.flush()
        outputs.append(one.output())
    marks = [output["metadata"]["dgkit"] for output in outputs]
    return {
        mark["picture"]: output
        for mark, output in zip(marks, outputs, strict=True)
        if states.get(mark["picture"], mark["state"]) != mark["state"]
    }


def _answer_pages() -> None:
    """Answer pages that request pictures. Idempotent; does nothing without a kernel."""
    import comm
    from IPython.core.getipython import get_ipython

    manager = comm.get_comm_manager()
    if not hasattr(get_ipython(), "kernel") or _TARGET in manager.comms:
        return
    # Not primary: as if a page had opened the comm, so no page is asked to open its side.
    channel = comm.create_comm(target_name=_TARGET, comm_id=_TARGET, primary=False)
    manager.register_comm(channel)

    def answer(message: dict[str, Any]) -> None:
        pictures: dict[str, dict[str, Any]] = {}
        try:
            pictures = renewed(dict(message["content"]["data"]["states"]))
        except Exception as error:
            _log.error("cannot renew the pictures for a page", exc_info=error)
        channel.send({"pictures": pictures})

    channel.on_msg(answer)


def _renew_for_headless(_result: object = None) -> None:
    """Renew the pictures at the end of a cell of nbclient, which ignores later updates.

    Front ends that show a live view name the cell, and receive updates at any time.
    """
    for output in list(_published):
        if output.headless:
            output.flush()


_hooked: weakref.WeakSet[Any] = weakref.WeakSet()  # shells
_pictures: weakref.WeakKeyDictionary[Any, ContainerPicture] = weakref.WeakKeyDictionary()
_displayed: weakref.WeakKeyDictionary[Output, list[Pictured]] = weakref.WeakKeyDictionary()


class ContainerPicture:
    """The picture of a container's panels."""

    def __init__(self, container: Any) -> None:
        self._container = weakref.ref(container)
        self._run = cell_lifetime.current_run()
        self._static = StaticOutput(self._draw)

    def publish(self) -> None:
        """Publish it below the container that the running cell displays, if it has panels."""
        panels = list(_panels_in(self._container()))
        for panel in panels:
            panel.hosted_by(self)
        if panels:
            self._static.publish()

    def publish_late(self) -> None:
        """Publish it at the end of the cell if the panels came after the container's display."""
        if self._run == cell_lifetime.current_run() and not self._static.published:
            self.publish()

    def renew_picture(self, *, live: bool = False) -> None:
        """Replace the picture soon, as Panel.renew_picture(): the state of a panel has changed."""
        self._static.renew(live=live)

    def _draw(self) -> Picture:
        from .picture import Picture

        panels = list(_panels_in(self._container()))
        whole = Picture(", ".join(panel.title for panel in panels) or "no panel")
        for panel in panels:
            whole.add(panel.picture())
        return whole


def picture_containers() -> None:
    """Make the shell display containers with the pictures of their panels. Idempotent."""
    shell = get_ipython()
    if shell is None or shell in _hooked:
        return
    _hooked.add(shell)
    formatter = shell.display_formatter.ipython_display_formatter
    for kind in (Box, Output):
        formatter.for_type(kind, _display)


def note_displayed(panel: Pictured) -> bool:
    """Record that a panel is displayed; return whether an Output widget has captured that."""
    shell = get_ipython()
    try:
        message = shell.get_parent()["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return False
    widgets = list(getattr(registry, "_instances", {}).values())
    captured = [one for one in widgets if isinstance(one, Output) and one.msg_id == message]
    for output in captured:
        panels = _displayed.setdefault(output, [])
        panels[:] = [*(other for other in panels if other is not panel), panel]
    return bool(captured)


def _display(container: Any) -> None:
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


def _panels_in(widget: Any) -> Iterator[Pictured]:
    """Iterate over the open panels in a widget, from the first to the last."""
    if isinstance(widget, Pictured):
        if not widget.closed:
            yield widget
    elif isinstance(widget, Box):
        for child in widget.children:
            yield from _panels_in(child)
    elif isinstance(widget, Output):
        yield from (panel for panel in _captured(widget) if not panel.closed)


def _captured(output: Output) -> list[Pictured]:
    """Return the panels that an Output shows; until a page reports them, the last displayed one."""
    panels = _displayed.get(output, [])
    view = "application/vnd.jupyter.widget-view+json"
    shown = {part.get("data", {}).get(view, {}).get("model_id") for part in output.outputs}
    return [panel for panel in panels if panel.model_id in shown] or panels[-1:]
