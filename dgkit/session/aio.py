"""Awaiting the transfers of a session; the package's only module that imports asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from .transfer import TransferReport

    class AwaitableTransfer(Protocol):
        """Transfer that signals its end by a callback and by a descriptor."""

        def done(self) -> bool: ...

        def wait(self) -> TransferReport: ...

        def fileno(self) -> int: ...

        def call_on_end(self, call: Callable[[], object]) -> None: ...

        def cancel_call(self, call: Callable[[], object]) -> None: ...


__all__ = ["wait"]

_POLL_S = 0.1  # another thread may handle the reply, and with it clear the descriptor


async def wait(transfer: AwaitableTransfer) -> TransferReport:
    """Return or raise what transfer.wait() would, while the event loop runs."""
    if transfer.done():
        return transfer.wait()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    notify = lambda: loop.call_soon_threadsafe(ready.set)  # noqa: E731
    fd = os.dup(transfer.fileno())  # a descriptor has one reader: each await needs its own
    loop.add_reader(fd, ready.set)
    transfer.call_on_end(notify)
    try:
        while not transfer.done():
            with contextlib.suppress(asyncio.TimeoutError):  # time to poll
                await asyncio.wait_for(ready.wait(), _POLL_S)
            ready.clear()
    finally:
        transfer.cancel_call(notify)
        loop.remove_reader(fd)
        os.close(fd)
    return transfer.wait()
