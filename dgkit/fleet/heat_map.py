"""Heat map of a sweep: the slowness of each pair relative to the median of all pairs."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ..html_cards import Html
from ..units import size_text
from .pair import natural_key

if TYPE_CHECKING:
    import pandas

_FIGURES = ("p50_ns", "gb_per_s")
_FULL = 2.0  # slowness from which a cell has the full colour
_SHOWN = 200  # maximum number of pairs in the table
_MOST = 0.6  # opacity of the full colour, so that text stays readable on light and dark pages


def slowness(frame: pandas.DataFrame, figure: str) -> pandas.DataFrame:
    """Return slownesses: one row for each pair, one column for each op, path and size.

    A cell is the pair's latency divided by the median of all pairs, or the median rate divided by
    the pair's: above 1 is slower. It is NaN where a pair has no such row.

    Raises:
        ValueError: `figure` is neither "p50_ns" nor "gb_per_s".
    """
    if figure not in _FIGURES:
        raise ValueError(f"figure is {figure!r}; it must be one of {', '.join(_FIGURES)}")
    import numpy as np
    import pandas as pd

    columns = ["op", "requested_path", "size"]
    kinds = frame[columns].drop_duplicates().sort_values(columns)
    numbers = {kind: number for number, kind in enumerate(kinds.itertuples(index=False, name=None))}
    pairs = frame["pair"].cat.categories
    cells = np.full((len(pairs), len(numbers)), np.nan)
    for kind, rows in frame.groupby(columns, observed=True, sort=False).indices.items():
        where = frame["pair"].cat.codes.to_numpy()[rows]
        cells[where, numbers[kind]] = frame[figure].to_numpy()[rows]
    cells = cells / np.nanmedian(cells, axis=0)
    index = pd.MultiIndex.from_frame(kinds)
    return pd.DataFrame(cells if figure == "p50_ns" else 1 / cells, list(pairs), index)


def heat_map(frame: pandas.DataFrame, figure: str) -> Html:
    """Return slowness() as an HTML table whose cells are coloured from 1.0 (none) to 2.0 (full)."""
    cells = slowness(frame, figure)
    what = "latency" if figure == "p50_ns" else "time of a byte"
    what = f"{what}, times the median of all pairs"
    if len(cells) > _SHOWN:
        what = f"{what}; the slowest {_SHOWN} of {len(cells):,} pairs"
        cells = cells.loc[cells.max(axis=1).sort_values(ascending=False).index[:_SHOWN]]
    heads = [f"{op}, {path}, {size_text(size)}" for op, path, size in cells.columns]
    cells = cells.loc[sorted(cells.index, key=lambda pair: natural_key(str(pair)))]
    lines = [
        _row(str(pair), heads, values)
        for pair, values in zip(cells.index, cells.to_numpy().tolist(), strict=True)
    ]
    style = "padding:1px 6px;font-weight:normal;text-align:left;font-size:11px"
    head = "".join(f'<th scope="col" style="{style}">{html.escape(text)}</th>' for text in heads)
    return Html(
        '<div style="overflow:auto;max-height:480px"><table style="border-collapse:collapse;'
        f'margin:8px 0px 0px 0px"><caption style="text-align:left;font-size:12px">{what}'
        f'</caption><thead><tr><th scope="col" style="{style}">pair</th>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _row(pair: str, heads: list[str], values: list[float]) -> str:
    cells = "".join(
        _cell(f"{pair}, {head}", value) for head, value in zip(heads, values, strict=True)
    )
    style = "padding:1px 6px;font-weight:normal;text-align:left;font-size:11px;white-space:nowrap"
    return f'<tr><th scope="row" style="{style}">{html.escape(pair)}</th>{cells}</tr>'


def _cell(title: str, value: float) -> str:
    if value != value:
        return "<td></td>"
    share = min(max((value - 1) / (_FULL - 1), 0.0), 1.0)
    return (
        f'<td title="{html.escape(title)}" style="padding:1px 6px;text-align:right;font-size:11px;'
        f'background-color:rgba(216,67,21,{_MOST * share:.2f})">{value:.2f}</td>'
    )
