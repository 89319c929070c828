"""Results of %dma in a notebook: bytes read, open sessions with their regions, help."""

from __future__ import annotations

import html
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from IPython.display import display

from ..html_cards import Html, access_text, card, hex_lines, provider_badge
from ..session import Session, SessionRegion
from ..types import provider_label
from ..units import size_text
from .arguments import sessions

_MAX_LINES = 16
_MONO = (
    "margin:6px 0px 0px 0px;font-size:12px;line-height:1.35;overflow-x:auto;"
    "font-family:monospace;font-family:var(--jp-code-font-family,monospace)"
)


@dataclass(frozen=True, slots=True, repr=False)
class BytesRead:
    """Bytes that the DPU read, as `data` or by bytes(); `offset` is their offset in the region."""

    data: bytes
    region: str
    where: str
    offset: int
    provider: str

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def _title(self) -> str:
        place = f"offset {self.offset:#x} of {self.region} on {self.where}"
        return f"{size_text(len(self.data))} at {place}"

    def _lines(self) -> list[str]:
        lines = hex_lines(self.data[: 16 * _MAX_LINES], offset=self.offset)
        rest = len(self.data) - 16 * _MAX_LINES
        return [*lines, f"... {rest:,} more bytes"] if rest > 0 else lines

    def __repr__(self) -> str:
        head = f"{self._title()} [{provider_label(self.provider)}]"
        return "\n".join([head, *(f"  {line}" for line in self._lines())])

    def _repr_html_(self) -> str:
        text = html.escape("\n".join(self._lines()))
        body = Html(f'<pre style="{_MONO}">{text}</pre>')
        badge = provider_badge(self.provider)
        return card(f"Read: {self._title()}", [], badge=badge, body=body)


@dataclass(frozen=True, slots=True, repr=False)
class Overview:
    """The open sessions and their live regions at the time of the call."""

    text: str
    page: str

    @classmethod
    def of(cls, variables: dict[str, SessionRegion]) -> Overview:
        """Return an overview; `variables` are the notebook's variables that hold regions."""
        found = sessions()
        if not found:
            none = "No session is open. Open one: session = dgkit.connect()"
            return cls(none, f"<div>{html.escape(none)}</div>")
        tables = [(session, _rows(session, variables)) for session in found]
        text = "\n".join(_as_text(session, rows) for session, rows in tables)
        return cls(text, "".join(_as_card(session, rows) for session, rows in tables))

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.page


def _rows(session: Session, variables: dict[str, SessionRegion]) -> list[tuple[str, str]]:
    rows = []
    for region in session.regions:
        names = [name for name, value in variables.items() if value is region]
        text = f"{size_text(region.size)} on {region.where}, {access_text(region.access)}"
        rows.append((region.name, f"{text}, in {', '.join(names)}" if names else text))
    return rows or [("no region", "session.empty(4096) allocates one")]


def _as_text(session: Session, rows: list[tuple[str, str]]) -> str:
    lines = [f"  {name}: {text}" for name, text in rows]
    return "\n".join(
        [f"{session!r} [{provider_label(session.dpu.provider, session.dpu.emulated)}]", *lines]
    )


def _as_card(session: Session, rows: list[tuple[str, str]]) -> str:
    about = session.info
    title = f"Session with DPU pid {about['dpu']['pid']}: live regions"
    badge = provider_badge(session.dpu.provider, session.dpu.emulated)
    return card(title, [*rows, ("address", about["address"])], badge=badge)


@dataclass(frozen=True, slots=True, repr=False)
class Help:
    """A help text, shown in a monospace font."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="{_MONO}">{html.escape(self.text)}</pre>'


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
