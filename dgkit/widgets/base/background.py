"""Blocking calls in their own threads, so that the frame thread keeps drawing.

Reserving the pages of new memory takes seconds for gigabytes, and a stopped agent does not answer.
The thread ends with its call. It may use the session, which is thread-safe, but of a panel only the
methods that a handler may call. It runs in a copy of the caller's context, so that the messages it
sends reach the caller's page.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

_SHORT_CALL_S = 0.005  # most calls return within this time


class BackgroundCall(Generic[T]):
    """A call in its own thread, started by the constructor.

    It cannot be cancelled: a caller that stops waiting must release what the call creates, for
    example in another task that waits for it.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._run,), name="dgkit-background", daemon=True
        ).start()
        self._done.wait(_SHORT_CALL_S)

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> Generator[None, None, T]:
        """Yield until the call has ended: `result = yield from call.wait()`.

        Returns:
            What the call returned.

        Raises:
            BaseException: What the call raised.
        """
        while not self._done.is_set():
            yield
        if self._error is not None:
            raise self._error
        return self._result[0]


def in_background(call: Callable[[], T]) -> Generator[None, None, T]:
    """Run a call in its own thread and yield until it ends.

    Use it as `result = yield from in_background(call)`.

    Returns:
        What the call returned.

    Raises:
        BaseException: What the call raised.
    """
    return (yield from BackgroundCall(call).wait())
