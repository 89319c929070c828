"""Awaiting the transfers of a session; the package's only module that imports asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

_POLL_S = 0.1  # interval at which done() checks that the worker runs


async def until_done(
    done: Callable[[], bool],
    call_on_end: Callable[[Callable[[], object]], object],
    cancel_call: Callable[[Callable[[], object]], object],
) -> None:
    """Wait until `done` returns true, without blocking the event loop; methods of a transfer."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    notify = lambda: loop.call_soon_threadsafe(ended.set)  # noqa: E731
    call_on_end(notify)
    try:
        while not done():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), _POLL_S)
    finally:
        cancel_call(notify)
