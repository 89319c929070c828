"""Traces: the readings and facts that a check uses, recorded in the thread that runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .reader import Reading


class Trace:
    """Readings by key, in the order in which they were used, and facts by name.

    Attributes:
        readings: The readings, including those from which the facts were derived.
        facts: Values of the facts that the check requested directly.
    """

    __slots__ = ("facts", "readings")

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.facts: dict[str, Any] = {}


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_stack = _Stack()


@contextmanager
def tracing() -> Iterator[Trace]:
    """Record the readings of this thread in a new trace, not in the enclosing trace."""
    trace = Trace()
    _stack.traces.append(trace)
    try:
        yield trace
    finally:
        _stack.traces.remove(trace)


def note(key: str, reading: Reading) -> Reading:
    """Record a reading in this thread's trace, if there is one, and return the reading."""
    if _stack.traces:
        _stack.traces[-1].readings.setdefault(key, reading)
    return reading


def note_fact(name: str, value: Any, used: Trace) -> None:
    """Record a fact and the readings in `used`, from which some thread derived the fact."""
    if _stack.traces:
        trace = _stack.traces[-1]
        trace.facts.setdefault(name, value)
        for key, reading in used.readings.items():
            trace.readings.setdefault(key, reading)
