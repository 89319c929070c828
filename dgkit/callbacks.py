# SPDX-License-Identifier: Apache-2.0
"""Functions that are called when something has happened."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, ParamSpec

P = ParamSpec("P")


class Callbacks(Generic[P]):
    """Functions that are called when something has happened. Thread-safe.

    Attributes:
        calls: The functions.

    Args:
        event: What happens, for the warning about a function that fails.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self.calls: list[Callable[P, object]] = []

    def add(self, call: Callable[P, object]) -> Callable[[], None]:
        """Add a function; return a function that removes it."""
        self.calls.append(call)

        def undo() -> None:
            if call in self.calls:
                self.calls.remove(call)

        return undo

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the functions; one that fails is reported as a warning, and the others still run."""
        for call in list(self.calls):
            try:
                call(*args, **kwargs)
            except Exception as exc:
                text = f"{call!r}, which is called after {self._event}, failed: {exc!r}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)


#: Called with each new session, in the thread that opened it.
session_opened: Callbacks[[Any]] = Callbacks("the opening of a session")
