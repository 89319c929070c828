"""The static picture in a panel's output: published with the panel, and renewed.

The picture is a second output, a PNG, which every reader of notebooks shows, also for a
notebook that it does not trust. While the live view is there, the panel's style sheet hides it.
"""

from __future__ import annotations

import base64
import logging
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import scheduler
from .background import in_background

if TYPE_CHECKING:
    from .picture import Picture

__all__ = ["StaticOutput"]

_INTERVAL_S = 2.0  # between two pictures of a panel, at least
_log = logging.getLogger("dgkit.widgets")


class StaticOutput:
    """The picture of one display of a panel; a later display replaces it."""

    def __init__(self, draw: Callable[[], Picture]) -> None:
        """Make an output, which nothing is published of.

        Args:
            draw: Returns the picture. Called in any thread.
        """
        self._draw = draw
        self._display_id = ""
        self._task: scheduler.Task | None = None
        self._published = 0.0
        self._last = b""

    def publish(self) -> None:
        """Publish the picture below what the running cell has put out so far."""
        self._display_id = uuid.uuid4().hex
        self._publish(self._png(), update=False)

    def renew(self) -> None:
        """Have the frame thread replace the picture soon, if it was published and has changed."""
        if self._display_id and (self._task is None or self._task.done):
            self._task = scheduler.start(self._renew(), self._failed)

    def end(self) -> None:
        """Leave the picture as it is."""
        self._display_id = ""
        if self._task is not None:
            self._task.cancel()

    def _renew(self) -> scheduler.Steps:
        yield from scheduler.sleep(self._published + _INTERVAL_S - time.monotonic())
        png = yield from in_background(self._png)
        if self._display_id and png[1] != self._last:
            self._publish(png, update=True)

    def _png(self) -> tuple[str, bytes]:
        """Draw; what cannot be drawn is logged, and costs the picture but not the output."""
        from .picture import Picture

        try:
            picture = self._draw()
            return picture.alt, picture.png()
        except Exception as error:
            self._failed(error)
        picture = Picture("no static picture")
        picture.text("There is no static picture of this output: run the cell to see it.")
        return picture.alt, picture.png()

    def _publish(self, png: tuple[str, bytes], *, update: bool) -> None:
        from IPython.display import publish_display_data

        alt, self._last = png
        self._published = time.monotonic()
        data = {"image/png": base64.b64encode(self._last).decode(), "text/plain": alt}
        publish_display_data(data, transient={"display_id": self._display_id}, update=update)

    def _failed(self, error: Exception) -> Any:
        _log.error("cannot draw the picture of a panel", exc_info=error)
