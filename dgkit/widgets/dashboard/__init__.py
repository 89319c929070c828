# SPDX-License-Identifier: Apache-2.0
"""The panels of one session together.

`dashboard_panel`: the dashboard; dashboard() starts the DPU's process before it is imported.
`opening`: that process, and its session.
`panels`: the four panels.
`sample_run`: the steps of "Show me".
`gauges`: the load of the kernel's machine.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .opening import Opening

if TYPE_CHECKING:
    from ...session import Session
    from .dashboard_panel import Dashboard

__all__ = ["dashboard"]

for _needed in ("ipywidgets", "anywidget"):
    if find_spec(_needed) is None:  # not imported yet: that takes longer than to start a process
        raise ModuleNotFoundError(f"No module named {_needed!r}", name=_needed)


def dashboard(session: Session | None = None) -> Dashboard:
    """Open the dashboard of a session, or of a software DPU that it starts.

    Repeated calls return the same dashboard while its session is open, so a cell that runs twice
    loses no region; one that has its own DPU then measures again. A dashboard of a given session is
    closed when its cell runs again without requesting it.

    In a notebook, the dashboard is there before its DPU runs; what needs the DPU waits for it.

    Args:
        session: The session to show. If None, the dashboard starts a software DPU, and its
            `close()` ends that DPU.

    Raises:
        DgkitError: As dgkit.connect(); in a notebook, as the dashboard is displayed or used.
    """
    first = session is None and f"{__name__}.dashboard_panel" not in sys.modules
    opening = Opening() if first else None
    try:
        from .dashboard_panel import find_or_create

        return find_or_create(session, opening)
    except BaseException:
        if opening is not None:
            opening.close()
        raise
