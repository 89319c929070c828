"""Visible views of a panel, and how often to draw for them.

A view reports when it becomes visible or hidden, and every few seconds while it is visible. A
closed page reports nothing, and messages to it accumulate in the Jupyter server. But while a cell
is running, the kernel may not receive the reports of a visible view either. So a view that has not
reported for a minute gets one frame a second, and none after an hour.
"""

from __future__ import annotations

import time

_RECENT_S, _EXPIRED_S = 60.0, 3600.0
_SLOW_S = 1.0  # between frames for views without a recent report
_MAX_VIEWS, _MAX_NAME = 32, 64  # views remembered, and characters of a view's name


class Viewers:
    """The visible views of a panel, by the time.monotonic() of their last report."""

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._drawn = 0.0

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
