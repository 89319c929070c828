"""Fair lock for the session's queue."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["FairLock"]

_RLock: Any = type(threading.RLock())


class FairLock(_RLock):  # type: ignore[misc]
    """Fair reentrant lock: waiters precede the releasing thread.

    A plain lock lets a thread that releases and retakes it starve the others. Its __exit__ is that
    of the base class, in C: Ctrl-C in a method in Python would leave the lock held.
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()  # held by the next owner; a returning thread queues after it

    def __enter__(self) -> None:
        if self._is_owned():
            try:
                self.acquire()
            except BaseException:  # Ctrl-C right after acquire(), which does not wait
                self.release()
                raise
            return
        try:
            with self._gate:
                self.acquire()
        except BaseException:  # Ctrl-C, which may come right after acquire()
            if self._is_owned():
                self.release()
            raise
