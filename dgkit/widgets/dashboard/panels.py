"""The four panels of a dashboard, and whose they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base import cell_lifetime
from ..base.panel import Panel, label_of

if TYPE_CHECKING:
    from ...session import Session
    from ..allocate.allocate import AllocatePanel
    from ..hexview.hexview import HexView
    from ..latency.latency import LatencyPlot
    from ..transfer.transfer import TransferPanel

__all__ = ["Panels", "end", "panels_of", "sides_of"]


class Panels(NamedTuple):
    """The four of one session."""

    allocate: AllocatePanel
    transfer: TransferPanel
    hex: HexView
    plot: LatencyPlot


def panels_of(session: Session, plot: LatencyPlot | None = None) -> Panels:
    """Four panels, or three beside the plot that there is."""
    from ..allocate.allocate import AllocatePanel
    from ..hexview.hexview import HexView
    from ..latency.latency import LatencyPlot
    from ..transfer.transfer import TransferPanel

    with cell_lifetime.detached():
        plot = plot or LatencyPlot(session)
        return Panels(AllocatePanel(session), TransferPanel(session), HexView(session), plot)


def end(panels: Iterable[Panel], session: Session | None) -> None:
    """Closes panels, and then a session."""
    with contextlib.ExitStack() as last_to_first:
        if session is not None:
            last_to_first.callback(session.close)
        for panel in panels:
            last_to_first.callback(panel.close)


def sides_of(session: Session) -> dict[str, Any]:
    """Who the two sides are, and each provider that was not taken, and why not."""
    info = session.info
    dpu, role = info["dpu"], info["role"]
    sides = [
        ("DPU", f"{dpu['engine'] or dpu['provider']}, pid {dpu['pid']}"),
        ("on", f"{dpu['machine']}, {dpu['cpus']} CPUs"),
        ("this process", f"{role}, pid {info[role]['pid']}"),
        ("address", info["address"]),
    ]
    shown = {"label": "closed", "provider": ""} if session.closed else label_of(session)
    return shown | {"sides": sides, "why": sorted(dpu["why"].items())}
