"""Who looks at a panel, and how often it is worth drawing for them.

A view says when it comes into sight and when it leaves it, and every few seconds that it is still
there. A page that was closed says nothing: what is sent to it piles up in the Jupyter server. But
while a cell is busy the kernel may not hear a view that is there, so one that was not heard of for
a minute gets a frame a second, and only after an hour none.
"""

from __future__ import annotations

import time

__all__ = ["Viewers"]

_SURE_S, _PERHAPS_S = 60.0, 3600.0
_SLOW_S = 1.0
_VIEWS, _NAME = 32, 64  # that are remembered, and the characters of a view's name


class Viewers:
    """The views in sight. Its times are time.monotonic()'s."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._drawn = 0.0

    def update(self, view: str, visible: bool) -> None:
        """A view said that it is seen, or that it is not. Of more than 32 the one that was not
        heard of for longest is forgotten until it says so again."""
        view = view[:_NAME]
        self._heard.pop(view, None)
        if visible:
            self._heard[view] = time.monotonic()
            while len(self._heard) > _VIEWS:
                del self._heard[next(iter(self._heard))]

    def due(self) -> bool:
        """Whether to draw now; who calls it 20 times a second draws that often for who is there."""
        now = time.monotonic()
        for view, heard in list(self._heard.items()):
            if now - heard > _PERHAPS_S:
                self._heard.pop(view, None)
        last = max(self._heard.values(), default=None)
        if last is None or (now - last > _SURE_S and now - self._drawn < _SLOW_S):
            return False
        self._drawn = now
        return True
