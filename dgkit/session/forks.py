"""Sessions after a fork(): what is open is the parent's, and the child lets go of it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import Session

__all__ = ["opened"]

opened: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(opened):
        session.abandon()


os.register_at_fork(after_in_child=_after_fork)
