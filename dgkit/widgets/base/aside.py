"""A call that waits for the system or for the other side, beside the frame thread.

New memory gets its pages one by one, seconds of them for gigabytes, and an agent that is stopped
does not answer: what is drawn meanwhile must not wait for that. The thread of such a call lives as
long as the call, touches the session alone (which is thread-safe), and sends no view anything.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

__all__ = ["aside"]

T = TypeVar("T")

_AT_ONCE_S = 0.005  # most calls are done by then


def aside(call: Callable[[], T]) -> Generator[None, None, T]:
    """`made = yield from aside(call)`: what it returns or raises; others have their turn."""
    done, result, errors = threading.Event(), list[T](), list[BaseException]()

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="dgkit-aside", daemon=True).start()
    done.wait(_AT_ONCE_S)
    while not done.is_set():
        yield
    if errors:
        raise errors[0]
    return result[0]
