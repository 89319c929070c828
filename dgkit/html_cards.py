# SPDX-License-Identifier: Apache-2.0
"""HTML cards, tables and histograms for notebooks, and hex dumps.

JupyterLab sanitizes the HTML of an untrusted notebook: it drops svg, style and script elements but
keeps their text, and drops CSS values that are not literal, `var(...)` included (JupyterLab,
packages/apputils/src/sanitizer.ts). Cards and charts are therefore plain boxes, each colour is set
twice (a literal, then the theme's variable), and text keeps the colour of the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import log10

from .types import provider_label
from .units import us

_GREY = "#8a8a8a"
_LINE = 13  # px, height of one line of the smallest text
_SMALL = "position:absolute;font-size:10px;line-height:1;white-space:nowrap"


class Html(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def hex_lines(data: bytes, *, offset: int = 0) -> list[str]:
    """Dump 16 bytes per line in 76 columns: offset, two groups of eight, printable ASCII."""
    return [_hex_line(data[at : at + 16], offset + at) for at in range(0, len(data), 16)]


def _hex_line(row: bytes, offset: int) -> str:
    left, right = (" ".join(f"{byte:02x}" for byte in half) for half in (row[:8], row[8:]))
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
    return f"{offset:08x}  {left:<23}  {right:<23}  {text}"


def access_text(access: object) -> str:
    """Return the meaning of `r`, `w`, `rw` or an Access: `read and write`."""
    return {"r": "read", "w": "write", "rw": "read and write"}[str(access)]


def badge(text: str, *, warn: bool = False, back: str = "") -> Html:
    """Return a short label in a box, in the colour `back`; else in that of a warning if `warn`."""
    back = back or ("#a34a00" if warn else "#5f6368")
    return Html(
        f'<span style="color:#ffffff;background-color:{back};padding:1px 8px;'
        f'border-radius:9px;font-size:11px">{html.escape(text)}</span>'
    )


def provider_badge(provider: str, elsewhere: bool = False) -> Html:
    """Return the label of a provider, in the warning colour unless it is hardware."""
    label = provider_label(provider, elsewhere)
    return badge(label, warn=label != "hardware")


def card(
    title: str,
    rows: Iterable[tuple[str, object]],
    *,
    badge: str = "",
    body: str = "",
    note: str = "",
) -> str:
    """Return a titled box of rows, as a plain str: for `_repr_html_`, whose hosts may serialize it.

    Everything is escaped except values, a `badge` and a `body` of type Html.

    Args:
        title: Title of the box.
        rows: Name and value of each row.
        badge: Label after the title.
        body: Content below the rows.
        note: Warning below the title.
    """
    lines = "".join(_row_html(name, value) for name, value in rows)
    tag = badge if isinstance(badge, Html) else _badge(badge) if badge else ""
    warning = f'<div style="margin:4px 0px">{_badge(note, warn=True)}</div>' if note else ""
    return (
        f'<div style="border:1px solid {_GREY};border-color:var(--jp-border-color1,{_GREY});'
        'border-radius:4px;padding:8px 12px;max-width:760px;margin:4px 0px">'
        f'<div style="margin:0px 0px 6px 0px"><strong>{html.escape(title)}</strong> {tag}</div>'
        f'{warning}<table style="border-collapse:collapse;table-layout:auto;margin:0px;'
        f'font-size:12px"><tbody>{lines}</tbody></table>{_html(body)}</div>'
    )


_badge = badge  # `card` has a parameter of that name


def _html(value: object) -> str:
    return value if isinstance(value, Html) else html.escape(str(value))


def _row_html(name: str, value: object) -> str:
    cell = "text-align:left;vertical-align:top;padding:2px 14px 2px 4px"
    return (
        f'<tr><th scope="row" style="{cell};font-weight:normal;opacity:0.75;white-space:nowrap">'
        f'{html.escape(name)}</th><td style="{cell}">{_html(value)}</td></tr>'
    )


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table for the `body` of a card. Cells are escaped unless they are Html."""
    cell = "text-align:left;vertical-align:middle;padding:2px 12px 2px 4px;"
    cell += f"border-top:1px solid {_GREY}"
    head = "".join(f'<th scope="col" style="{cell}">{html.escape(name)}</th>' for name in header)
    lines = ""
    for row in rows:
        cells = "".join(f'<td style="{cell}">{_html(value)}</td>' for value in row)
        lines += f"<tr>{cells}</tr>"
    return Html(
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;table-layout:auto;'
        'margin:8px 0px 0px 0px;font-size:12px"><caption style="text-align:left;padding:2px 4px;'
        f'opacity:0.75">{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def chart(
    edges_ns: Sequence[int], counts: Sequence[int], marks: Sequence[tuple[str, int]] = ()
) -> Html:
    """Return a histogram of times, with logarithmic axes so that single samples are visible.

    Args:
        edges_ns: Bin edges: bin i holds the samples with edges_ns[i] <= t < edges_ns[i+1].
        counts: Samples in each bin.
        marks: A few (label, ns) pairs, drawn as vertical lines.
    """
    low, high = _span(edges_ns[0], edges_ns[-1])
    top = log10(max([*counts, 9]) + 1)

    def across(ns: float) -> float:
        return min(100.0, max(0.0, 100 * (log10(max(ns, 1)) - low) / (high - low)))

    boxes = [
        _bar_html(
            across(left), across(right), 100 * log10(count + 1) / top, _bin(left, right, count)
        )
        for (left, right), count in zip(pairwise(edges_ns), counts, strict=True)
        if count
    ]
    boxes += [
        _mark(_LINE * (len(marks) - row), label, across(ns), ns)
        for row, (label, ns) in enumerate(marks)
    ]
    boxes += [_tick_html(across(ns), f"{ns / 1000:g}") for ns in _round_times(low, high)]
    powers = [10**k for k in range(int(top) + 1)]
    boxes += [_level(100 * log10(n + 1) / top, f"{n:,}") for n in powers if log10(n + 1) <= top]
    return _frame_html(boxes, rows=len(marks))


def _span(first: int, last: int) -> tuple[float, float]:
    """Return the ends of the axis as powers of ten, at least a factor of three apart."""
    low, high = log10(max(first, 1)), log10(max(last, 1))
    spare = max(0.0, log10(3) - (high - low))
    return low - min(low, spare / 2), high + spare - min(low, spare / 2)


def _bin(left: int, right: int, count: int) -> str:
    return f"{us(left)} to {us(right)} µs: {count:,} samples"


def _bar_html(left: float, right: float, height: float, tip: str) -> str:
    return (
        f'<div title="{tip}" style="position:absolute;bottom:0px;left:{left:.2f}%;'
        f"width:{max(right - left - 0.15, 0.3):.2f}%;height:{height:.1f}%;"
        'background-color:#1e88e5;background-color:var(--jp-brand-color1,#1e88e5)"></div>'
    )


def _mark(up: int, label: str, x: float, ns: int) -> str:
    """Return a dashed line that starts `up` px above the chart, labelled at its top."""
    line = "#d84315;border-color:var(--jp-error-color1,#d84315)"
    side, gap = ("right", 100 - x) if x > 83 else ("left", x)
    return (
        f'<div style="position:absolute;top:-{up}px;bottom:0px;left:{x:.2f}%;'
        f'border-left:1px dashed {line}"></div>'
        f'<div style="{_SMALL};top:-{up}px;{side}:{gap:.2f}%;padding-{side}:4px">'
        f"{html.escape(label)} {us(ns)}</div>"
    )


def _tick_html(x: float, text: str) -> str:
    return (
        f'<div style="{_SMALL};left:{x:.2f}%;top:100%;border-left:1px solid {_GREY};'
        f'padding:6px 0px 0px 3px">{text}</div>'
    )


def _level(y: float, text: str) -> str:
    """Return a count on the left axis and a faint horizontal line at its height."""
    return (
        f'<div style="position:absolute;left:0px;bottom:{y:.1f}%;width:100%;opacity:0.3;'
        f'border-top:1px dotted {_GREY}"></div>'
        f'<div style="{_SMALL};right:100%;bottom:{y:.1f}%;margin-bottom:-4px;padding-right:6px">'
        f"{text}</div>"
    )


def _round_times(low: float, high: float) -> Iterator[float]:
    """Yield about ten tick times in ns for an axis from 10^low to 10^high."""
    span = high - low
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if span < 1.2 else (1.0, 3.0) if span < 3.5 else (1.0,)
    for power in range(int(low), int(high) + 1):
        yield from (s * 10**power for s in steps if low <= log10(s * 10**power) <= high)


def _frame_html(boxes: Iterable[str], *, rows: int) -> Html:
    axis = f"border-left:1px solid {_GREY};border-bottom:1px solid {_GREY}"
    note = "font-size:11px;opacity:0.75"
    return Html(
        f'<div style="{note};margin:10px 0px 0px 0px">samples, log scale</div>'
        f'<div style="position:relative;height:110px;{axis};'
        f'margin:{6 + _LINE * rows}px 40px 20px 52px">{"".join(boxes)}</div>'
        f'<div style="{note};text-align:center">time of one operation, µs, log scale</div>'
    )
