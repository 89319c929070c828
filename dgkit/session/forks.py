"""Sessions that are open when their process forks or ends: the child of a fork lets go of what is
the parent's, and the end closes them while there is an interpreter that can."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import TYPE_CHECKING

from ..errors import DgkitError
from . import lifecycle

if TYPE_CHECKING:
    from .session import Session

__all__ = ["at_exit", "opened"]

opened: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(opened):
        session.abandon()


os.register_at_fork(after_in_child=_after_fork)


def at_exit() -> None:
    """Has those that are open closed at the end of the process, before their devices: what is
    registered last goes first, so a session asks for it when its device is there."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in [one for one in opened if not one.closed]:
        with contextlib.suppress(DgkitError):
            lifecycle.forgotten(session)
