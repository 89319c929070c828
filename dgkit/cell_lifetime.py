# SPDX-License-Identifier: Apache-2.0
"""Closing the panels and sessions of a notebook cell that is run again.

The first new panel of a run closes the panels of the previous runs of that cell. If the cell
creates no panel, they are closed when it has ended. A panel that the cell displays or requests
again stays open.

A session of a previous run is closed when a run that opened another one has ended, unless a
variable still has it, also in a list, a dictionary or an object of the user's. Values of `Out`,
which keeps all results, do not count as variables.

The front end names the cell in each execute request. If it does not (a console), or if another cell
opened the session, it is not closed: `Out` and `_` forget it, so that it ends unless something else
has it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from .callbacks import session_opened

_log = logging.getLogger("dgkit.widgets")


class _Session(Protocol):
    def close(self) -> None: ...


class _Use(NamedTuple):
    """A panel's last use by a cell.

    Attributes:
        run: The run of the cell that used it.
        close: Closes the panel; a weak reference, like that to the panel.
        shared: A later run may request the same panel, so it is closed after that run has ended.
    """

    run: str
    close: weakref.WeakMethod[Callable[[], None]]
    shared: bool


_ITEMS, _LOOKS = 1000, 100_000  # looked at of a container; looked at in all
_lock = threading.Lock()
_panels: dict[str, weakref.WeakKeyDictionary[object, _Use]] = {}  # by cell, then by panel
_sessions: dict[str, weakref.WeakKeyDictionary[_Session, str]] = {}  # by cell; session -> run
_earlier: weakref.WeakSet[_Session] = weakref.WeakSet()  # of all cells
_opened: weakref.WeakSet[_Session] = weakref.WeakSet()  # by the running cell
_detached: ContextVar[bool] = ContextVar("dgkit_detached", default=False)
_hooks: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()  # by shell


def current_shell() -> Any:
    """Return the shell of this kernel, or None; IPython is not imported."""
    module = sys.modules.get("IPython.core.getipython")
    return None if module is None else module.get_ipython()


def current_run() -> tuple[str, str]:
    """Return the id of the running cell and of this run of it.

    Returns:
        Two empty strings outside a kernel, or if the front end does not name the cell.
    """
    try:
        parent = current_shell().get_parent()
        if parent["header"]["msg_type"] != "execute_request":
            return "", ""
        return parent["metadata"].get("cellId", ""), parent["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return "", ""


@contextlib.contextmanager
def detached() -> Iterator[None]:
    """Create panels and sessions that belong to no cell: the caller closes them."""
    token = _detached.set(True)
    try:
        yield
    finally:
        _detached.reset(token)


def register(panel: object, close: Callable[[], None], *, shared: bool = False) -> None:
    """Bind a panel to the running cell and close the panels of earlier runs of that cell.

    Args:
        close: Its method that closes it.
        shared: A later run may request the same panel: it is closed after that run, if unused.
    """
    cell, run = current_run()
    if not cell or _detached.get():
        return
    after_each_cell(close_stale)
    use = _Use(run, weakref.WeakMethod(close), shared)
    with _lock:
        _panels.setdefault(cell, weakref.WeakKeyDictionary())[panel] = use
    _close(cell, run, all_of_them=False)


def mark_used(panel: object) -> None:
    """Keep a panel open that an earlier run of this cell created, since this run uses it."""
    cell, run = current_run()
    with _lock:
        if panel in _panels.get(cell, ()):
            _panels[cell][panel] = _panels[cell][panel]._replace(run=run)


def close_stale(_result: object = None) -> None:
    """Close the panels that only earlier runs of the running cell used; called when it ends."""
    cell, run = current_run()
    if cell and _close(cell, run, all_of_them=True):
        gc.collect()  # panels are reference cycles; an unreferenced session ends its DPU


def _close(cell: str, run: str, *, all_of_them: bool) -> bool:
    """Close the panels of other runs of a cell, shared ones only if `all_of_them`."""
    with _lock:
        own = _panels.get(cell, weakref.WeakKeyDictionary[object, _Use]())
        stale = {
            panel: use
            for panel, use in own.items()
            if use.run != run and (all_of_them or not use.shared)
        }
        for panel in stale:
            del own[panel]
        unused = [panel for panel in stale if not any(panel in used for used in _panels.values())]
    for panel in unused:
        if (close := stale[panel].close()) is not None:
            _close_or_warn(close, type(panel).__name__)
    return bool(unused)


def _close_or_warn(close: Callable[[], None], name: str) -> None:
    try:
        close()
    except Exception:  # must not affect the cell or what else is to be closed
        _log.exception("cannot close %r", name)


def register_session(session: _Session) -> None:
    """Bind a new session to the running cell."""
    cell, run = current_run()
    if current_shell() is None or _detached.get():
        return
    after_each_cell(close_replaced)
    with _lock:
        _opened.add(session)
        if cell:
            _sessions.setdefault(cell, weakref.WeakKeyDictionary())[session] = run


def close_replaced(_result: object = None) -> None:
    """End the sessions that those of the running cell replaced; called when it ends."""
    if not _opened:
        return
    cell, run = current_run()
    variables = list(current_shell().user_ns.items())
    bound = [each for name, each in variables if name[0] != "_" and name != "Out"]
    kept, in_use = _reached(bound.copy()), _reached(bound, owners=True)
    del variables, bound
    with _lock:
        own = _sessions.get(cell, weakref.WeakKeyDictionary[_Session, str]())
        replaced = [each for each, used in own.items() if used != run and id(each) not in kept]
        for session in replaced:
            del own[session]
            _earlier.discard(session)
        others = {id(each) for each in _earlier} - in_use
        _earlier.update(_opened)
        _opened.clear()
    for session in replaced:
        _close_or_warn(session.close, "Session")
    if others:
        _forget_results(others)
        gc.collect()  # sessions are reference cycles


def _forget_results(gone: set[int]) -> None:
    """Remove the results that have one of these sessions, also as a region or a panel of it."""
    shell = current_shell()
    results = shell.user_ns.get("Out", {})
    for key in [key for key, value in results.items() if gone & _reached([value], owners=True)]:
        del results[key]
    # IPython has `_`, `__`, `___` and `_1`, ... in three places.
    hidden, hook = getattr(shell, "user_ns_hidden", {}), getattr(shell, "displayhook", None)
    for names in (shell.user_ns, hidden, getattr(hook, "__dict__", {})):
        for name in [name for name in names if not name.strip("_0123456789")]:
            if gone & _reached([names[name]], owners=True):
                names[name] = ""


def _reached(found: list[Any], *, owners: bool = False) -> set[int]:
    """Return the ids of objects, and of what containers and the user's own objects have.

    Args:
        found: The objects.
        owners: Also the sessions of regions, panels and other objects of dgkit.
    """
    seen: dict[int, Any] = {}
    for value in found:  # which grows
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if len(seen) == _LOOKS:
            break
        if isinstance(value, dict):
            found.extend(list(value.values())[:_ITEMS])
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            found.extend(list(value)[:_ITEMS])
        elif type(value).__module__ == "__main__":
            found.extend(getattr(value, "__dict__", {}).values())
        elif owners and type(value).__module__.startswith("dgkit."):
            found.append(getattr(value, "session", None))
    return set(seen)


def after_each_cell(call: Callable[[object], None]) -> None:
    """Have the shell call a function after each cell. Idempotent."""
    shell = current_shell()
    with _lock:
        if shell is None or call in _hooks.setdefault(shell, set()):
            return
        _hooks[shell].add(call)
    shell.events.register("post_run_cell", call)


session_opened.add(register_session)
