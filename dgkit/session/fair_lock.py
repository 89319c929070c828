"""Fair lock for the session's queue."""

from __future__ import annotations

import threading

__all__ = ["FairLock"]


class FairLock:
    """Fair reentrant lock: waiters precede the releasing thread.

    A plain lock lets a thread that releases and retakes it starve the others.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._gate = threading.Lock()  # held by the next owner; a returning thread queues after it

    def __enter__(self) -> None:
        lock = self._lock
        if lock._is_owned():  # type: ignore[attr-defined]
            lock.acquire()
            return
        try:
            with self._gate:
                lock.acquire()
        except BaseException:  # Ctrl-C, which may come right after acquire()
            if lock._is_owned():  # type: ignore[attr-defined]
                lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
