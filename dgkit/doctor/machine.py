"""One machine, or one side of a pair: a reader, and what was made of its readings, each once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .collect.reader import Reader
from .goals import Goal

__all__ = ["SIZE", "Case", "Machine"]

SIZE = 64 << 20  # bytes of GPU memory that are lent at once, if nobody says how many

T = TypeVar("T")


class _Once:
    """A fact that is worked out once, by the first who asks, while the others wait."""

    __slots__ = ("begun", "error", "known", "lock", "value")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.begun = False
        self.known = False
        self.value: Any = None
        self.error: Exception | None = None


class Machine:
    """`know(facts.pci.tree)` works a fact out, once for all checks, which run side by side.

    `name` is for people: `this machine`, or the snapshot's file. `with` closes the reader.
    """

    def __init__(self, reader: Reader, name: str = "this machine") -> None:
        self.read = reader
        self.name = name
        self._lock = threading.Lock()
        self._facts: dict[Callable[[Machine], Any], _Once] = {}

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the commands that still run; what is asked afterwards gets no answer."""
        self.read.close()

    def know(self, fact: Callable[[Machine], T]) -> T:
        """`fact(self)`, worked out at the first call. What it raises, each caller gets.

        RuntimeError: the fact asks for itself, by way of others perhaps.
        """
        with self._lock:
            once = self._facts.setdefault(fact, _Once())
        with once.lock:
            if not once.known:
                if once.begun:  # by this very thread: the lock keeps the others out
                    raise RuntimeError(f"the fact {fact.__name__} asks for itself")
                once.begun = True
                try:
                    once.value = fact(self)
                except Exception as error:
                    once.error = error
                once.known = True
        if once.error is not None:
            raise once.error.with_traceback(None)  # which would grow with each who asks
        return once.value  # type: ignore[no-any-return]


class Case(msgspec.Struct, frozen=True):
    """What a check is given: the machine to judge, and what it is judged for.

    `host` and `dpu` are the two sides as far as they are known; `machine` is one of them. `size`:
    bytes of GPU memory that are to be lent at once.
    """

    machine: Machine
    goal: Goal
    size: int = SIZE
    host: Machine | None = None
    dpu: Machine | None = None
