"""A cell that is run again: what its last run made is closed, so that nothing of it goes on.

The front end says in each request to execute which cell it is of. Where it does not (a console),
nothing is closed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from IPython.core.getipython import get_ipython

if TYPE_CHECKING:

    class Closable(Protocol):
        """A panel."""

        def close(self) -> None: ...


__all__ = ["of_this_cell", "running"]

_made: dict[str, tuple[str, weakref.WeakSet[Any]]] = {}


def running() -> tuple[str, str]:
    """The id of the cell that runs, and of this run of it; empty texts where nothing tells."""
    shell = get_ipython()
    try:
        parent = shell.get_parent()
        if parent["header"]["msg_type"] != "execute_request":
            return "", ""
        return parent["metadata"].get("cellId", ""), parent["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return "", ""


def of_this_cell(panel: Closable) -> None:
    """Closes what an earlier run of the cell made; a later run closes this one."""
    cell, run = running()
    if not cell:
        return
    last, panels = _made.get(cell, ("", weakref.WeakSet()))
    if last != run:
        for old in list(panels):
            old.close()
        panels = weakref.WeakSet()
        _made[cell] = (run, panels)
    panels.add(panel)
