"""Awaiting a session's transfers. The only module here that knows asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .remote_dpu import AgentTransfer
    from .transfer import TransferReport

__all__ = ["wait"]

_GLANCE_S = 0.1  # another thread may take in the reply, and with it the news of the descriptor


async def wait(transfer: AgentTransfer) -> TransferReport:
    """Returns or raises what transfer.wait() would; the loop runs meanwhile."""
    if transfer.done():
        return transfer.wait()
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    ring = lambda: loop.call_soon_threadsafe(news.set)  # noqa: E731
    fd = os.dup(transfer.fileno())  # one reader a descriptor: each await has its own
    loop.add_reader(fd, news.set)
    transfer.call_when_done(ring)
    try:
        while not transfer.done():
            with contextlib.suppress(asyncio.TimeoutError):  # time for a glance
                await asyncio.wait_for(news.wait(), _GLANCE_S)
            news.clear()
    finally:
        transfer.call_off(ring)
        loop.remove_reader(fd)
        os.close(fd)
    return transfer.wait()
