"""The static picture in an output: published with a panel or a container, and renewed.

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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ... import cell_lifetime
from . import scheduler
from .background import in_background

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
