"""A lock that goes round: who waits gets it before who had it last."""

from __future__ import annotations

import threading

__all__ = ["Turns"]


class Turns:
    """Of a thread that takes it again and again it keeps no other out for longer than one turn, as
    a plain lock does. The thread that has it may take it once more."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._gate = threading.Lock()  # who has it is next; who wants a second turn comes after

    def __enter__(self) -> None:
        lock = self._lock
        if lock._is_owned():  # type: ignore[attr-defined]
            lock.acquire()
            return
        try:
            with self._gate:
                lock.acquire()
        except BaseException:  # Ctrl-C, which may come when it was just got
            if lock._is_owned():  # type: ignore[attr-defined]
                lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
