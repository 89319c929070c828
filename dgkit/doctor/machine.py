# SPDX-License-Identifier: Apache-2.0
"""One machine, or one side of a pair: a reader, and cached facts derived from its readings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..unique import Closable
from .collect.reader import Reader, Trace, note_fact, tracing
from .goals import Goal

SIZE = 64 << 20  # default number of bytes of GPU memory to export at once

T = TypeVar("T")


class _CachedFact:
    """Value or exception of a fact, computed by the first caller while others wait."""

    __slots__ = ("computed", "error", "lock", "started", "trace", "value")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.started = False
        self.computed = False
        self.value: Any = None
        self.error: Exception | None = None
        self.trace = Trace()


class Machine(Closable):
    """A machine under diagnosis. Use it in a `with` statement to close the reader.

    Attributes:
        read: Reader of the machine.
        name: Name for people: `this machine`, or the file of the snapshot.
    """

    def __init__(self, reader: Reader, name: str = "this machine") -> None:
        self.read = reader
        self.name = name
        self._lock = threading.Lock()
        self._facts: dict[Callable[[Machine], Any], _CachedFact] = {}

    def close(self) -> None:
        """Close the reader: stop running commands and fail later reads."""
        self.read.close()

    def know(self, fact: Callable[[Machine], T]) -> T:
        """Return `fact(self)`, computed on the first call and cached for all threads.

        If the fact raises an exception, it is cached, too, and raised for each caller.

        Raises:
            RuntimeError: The fact depends on itself.
        """
        with self._lock:
            cached = self._facts.setdefault(fact, _CachedFact())
        with cached.lock:
            if not cached.computed:
                if cached.started:  # by this same thread, since the lock excludes all others
                    raise RuntimeError(f"the fact {_name(fact)} depends on itself")
                cached.started = True
                with tracing() as cached.trace:
                    try:
                        cached.value = fact(self)
                    except Exception as error:
                        cached.error = error
                cached.computed = True
        note_fact(_name(fact), cached.error or cached.value, cached.trace)
        if cached.error is not None:
            raise cached.error.with_traceback(None)  # the traceback would grow with each raise
        return cached.value  # type: ignore[no-any-return]


def _name(fact: Callable[[Machine], Any]) -> str:
    while isinstance(fact, partial):
        fact = fact.func
    return fact.__name__.lstrip("_")


class Case(msgspec.Struct, frozen=True):
    """Input of a check.

    Attributes:
        machine: The machine to judge.
        goal: Goal that the machine is judged for.
        size: Bytes of GPU memory to export at once.
        host: The host side, if it is part of the diagnosis; `machine` is the host or the DPU.
        dpu: The DPU side, if it is part of the diagnosis.
    """

    machine: Machine
    goal: Goal
    size: int = SIZE
    host: Machine | None = None
    dpu: Machine | None = None
