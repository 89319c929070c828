"""Progress bar in the output of a cell, or on a terminal."""

from __future__ import annotations

import html
import sys
import time
from types import TracebackType
from typing import Any

from IPython.display import display

_DELAY_S, _STEP_S = 0.4, 0.1  # time before it appears; interval of updates
_BOX = "height:8px;border-radius:4px"
_TRACK = f"{_BOX};background-color:#c8c8c8;background-color:var(--jp-border-color2,#c8c8c8)"
_FILL = f"{_BOX};background-color:#1e88e5;background-color:var(--jp-brand-color1,#1e88e5)"
_EMPTY = {"text/plain": "", "text/html": ""}


class ProgressBar:
    """Progress bar that appears after a delay and is removed at the end; call it (done, total)."""

    def __init__(self, shell: Any, title: str) -> None:
        self.title = title
        self.done, self.total = 0, 1
        self._next_s = time.monotonic() + _DELAY_S
        self._notebook = getattr(shell, "kernel", None) is not None
        self._handle: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Update the bar, at most ten times a second."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _STEP_S
        self.done, self.total = done, max(total, 1)
        if not self._notebook:
            self._write(f"\r{self!r} ")
        elif self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def _write(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(text)
            sys.stderr.flush()
            self._handle = self

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._handle is self:
            self._write("\r\x1b[K")
        elif self._handle is not None:
            self._handle.update(_EMPTY, raw=True)

    @property
    def percent(self) -> int:
        """Progress from 0 to 100."""
        return min(100, 100 * self.done // self.total)

    def __repr__(self) -> str:
        return f"{self.title}: {self.percent} % of {self.total:,}"

    def _repr_html_(self) -> str:
        text = html.escape(repr(self))
        return (
            f'<div role="progressbar" aria-valuemin="0" aria-valuemax="100" '
            f'aria-valuenow="{self.percent}" aria-label="{text}" style="max-width:640px">'
            f'<div style="font-size:12px">{text}</div><div style="{_TRACK}">'
            f'<div style="{_FILL};width:{self.percent}%"></div></div></div>'
        )
