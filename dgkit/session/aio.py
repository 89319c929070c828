"""Awaiting the transfers of a session; the package's only module that imports asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .transfer import SessionTransfer, TransferReport


_POLL_S = 0.1  # another thread may handle the reply, and so consume the descriptor's event


async def wait(transfer: SessionTransfer) -> TransferReport:
    """Return or raise what transfer.wait() would, without blocking the event loop."""
    if transfer.done():
        return transfer.wait()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    notify = lambda: loop.call_soon_threadsafe(ready.set)  # noqa: E731
    transfer.call_on_end(notify)
    with contextlib.ExitStack() as undo:
        undo.callback(transfer.cancel_call, notify)
        if transfer.fileno() >= 0:
            fd = os.dup(transfer.fileno())  # asyncio allows one reader per fd
            undo.callback(os.close, fd)
            loop.add_reader(fd, ready.set)
            undo.callback(loop.remove_reader, fd)
        while not transfer.done():
            with contextlib.suppress(asyncio.TimeoutError):  # time to poll
                await asyncio.wait_for(ready.wait(), _POLL_S)
            ready.clear()
    return transfer.wait()
