# SPDX-License-Identifier: Apache-2.0
"""The four panels of a dashboard, and the two sides of its session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ... import cell_lifetime
from ..base.panel import Panel
from ..base.session_model import label_of

if TYPE_CHECKING:
    from ...session import Session
    from ..allocate.allocate_panel import AllocatePanel
    from ..base.page_input import Json
    from ..hexview.hexview import HexView
    from ..latency.latency_panel import LatencyPlot
    from ..transfer.transfer_panel import TransferPanel


class Panels(NamedTuple):
    """The four panels of one session."""

    allocate: AllocatePanel
    transfer: TransferPanel
    hex: HexView
    plot: LatencyPlot


def import_all() -> None:
    """Import what panels need."""
    for panel in ("allocate", "hexview", "latency", "transfer"):
        import_module(f"dgkit.widgets.{panel}")


def create_panels(session: Session, plot: LatencyPlot | None = None) -> Panels:
    """Create the panels of a session; they do not belong to a cell.

    Args:
        plot: An existing latency plot to use instead of a new one.
    """
    from ..allocate.allocate_panel import AllocatePanel
    from ..hexview.hexview import HexView
    from ..latency.latency_panel import LatencyPlot
    from ..transfer.transfer_panel import TransferPanel

    with cell_lifetime.detached():
        plot = plot or LatencyPlot(session)
        return Panels(AllocatePanel(session), TransferPanel(session), HexView(session), plot)


def close_all(panels: Iterable[Panel], session: Session | None) -> None:
    """Close panels in reverse order, then a session; an error in one does not stop the others."""
    with contextlib.ExitStack() as stack:
        if session is not None:
            stack.callback(session.close)
        for panel in panels:
            stack.callback(panel.close)


def sides_state(session: Session) -> Json:
    """Return `sides`, `why` (each provider not in use, with the reason), `provider` and `label`."""
    info = session.info
    dpu, role = info["dpu"], info["role"]
    sides = [
        ("DPU", f"{dpu['engine'] or dpu['provider']}, pid {dpu['pid']}"),
        ("on", f"{dpu['machine']}, {dpu['cpus']} CPUs"),
        ("this process", f"{role}, pid {info[role]['pid']}"),
        ("address", info["address"]),
    ]
    label = {"label": "closed", "provider": ""} if session.closed else label_of(session)
    return label | {"sides": sides, "why": sorted(dpu["why"].items())}
