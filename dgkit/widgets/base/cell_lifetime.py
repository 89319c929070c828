"""A cell that is run again: what its last run made is closed, so that nothing of it goes on.

Its first new panel closes the old ones, and where it makes none any more they are closed when it
has ended. What it showed or asked for again stays. The front end says in each request to execute
which cell it is of. Where it does not (a console), nothing is closed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from IPython.core.getipython import get_ipython

if TYPE_CHECKING:

    class Closable(Protocol):
        """A panel. `shared`: the cell may ask for it again, so it is closed after the cell."""

        shared: bool

        def close(self) -> None: ...


__all__ = ["close_stale", "current_run", "detached", "mark_used", "register"]

_log = logging.getLogger("dgkit.widgets")
_lock = threading.Lock()
_made: dict[str, weakref.WeakKeyDictionary[Any, str]] = {}  # by cell; in which run it was used
_detached: ContextVar[bool] = ContextVar("dgkit_detached", default=False)
_hooked: weakref.WeakSet[Any] = weakref.WeakSet()  # shells


def current_run() -> tuple[str, str]:
    """The id of the cell that runs, and of this run of it; empty texts where nothing tells."""
    shell = get_ipython()
    try:
        parent = shell.get_parent()
        if parent["header"]["msg_type"] != "execute_request":
            return "", ""
        return parent["metadata"].get("cellId", ""), parent["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return "", ""


@contextlib.contextmanager
def detached() -> Iterator[None]:
    """What is made in the block is of no cell: who makes it closes it."""
    token = _detached.set(True)
    try:
        yield
    finally:
        _detached.reset(token)


def register(panel: Closable) -> None:
    """Closes what an earlier run of the cell made; a later run closes this one."""
    cell, run = current_run()
    if not cell or _detached.get():
        return
    _hook()
    with _lock:
        _made.setdefault(cell, weakref.WeakKeyDictionary())[panel] = run
    _close(cell, run, shared=False)


def mark_used(panel: Closable) -> None:
    """The cell that made it runs again and shows it again."""
    cell, run = current_run()
    with _lock:
        if panel in _made.get(cell, ()):
            _made[cell][panel] = run


def close_stale(_result: object = None) -> None:
    """The cell that runs has ended: what only an earlier run of it used is closed."""
    cell, run = current_run()
    if cell and _close(cell, run, shared=True):
        gc.collect()  # panels are cycles, and a session that nobody has ends its DPU


def _close(cell: str, run: str, *, shared: bool) -> bool:
    with _lock:
        mine = _made.get(cell, weakref.WeakKeyDictionary[Any, str]())
        old = [one for one, used in mine.items() if used != run and (shared or not one.shared)]
        for panel in old:
            del mine[panel]
        left = [one for one in old if not any(one in others for others in _made.values())]
    for panel in left:
        try:
            panel.close()
        except Exception:  # the cell goes on, and so do the others
            _log.exception("while %r was closed", type(panel).__name__)
    return bool(left)


def _hook() -> None:
    """Has the shell say when a cell has ended."""
    shell = get_ipython()
    with _lock:
        if shell is None or shell in _hooked:
            return
        _hooked.add(shell)
    shell.events.register("post_run_cell", close_stale)
