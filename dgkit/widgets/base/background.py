"""A call that waits for the system or for the other side, beside the frame thread.

New memory gets its pages one by one, seconds of them for gigabytes, and an agent that is stopped
does not answer: what is drawn meanwhile must not wait for that. The thread of such a call lives as
long as the call. It touches the session, which is thread-safe, and of a panel at most what a
handler may call; it has the context of who started it, so what that sends reaches its page.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

__all__ = ["BackgroundCall", "in_background"]

T = TypeVar("T")

_AT_ONCE_S = 0.005  # most calls are done by then


class BackgroundCall(Generic[T]):
    """A call that has begun. It cannot be taken back: who waits no more has to think of what it
    makes, and another task may wait on."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._run,), name="dgkit-background", daemon=True
        ).start()
        self._done.wait(_AT_ONCE_S)

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> Generator[None, None, T]:
        """`made = yield from begun.wait()`: what it returns or raises; others have their turn."""
        while not self._done.is_set():
            yield
        if self._error is not None:
            raise self._error
        return self._result[0]


def in_background(call: Callable[[], T]) -> Generator[None, None, T]:
    """`made = yield from in_background(call)`: begins, and waits."""
    return (yield from BackgroundCall(call).wait())
