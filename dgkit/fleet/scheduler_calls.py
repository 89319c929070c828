# SPDX-License-Identifier: Apache-2.0
"""Calls to the scheduler, with a time limit and typed errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import PeerLost, PeerTimeout
from ..threads import starting

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

CALL_S = 15.0  # limit of one call; Dask's own connect timeout is 30 s
_ALL_S, _EACH_S = 60.0, 0.25  # limit of a call to all workers: fixed part, part per worker


def address_of(client: Client) -> str:
    """Return the scheduler's address, or "" if the client never connected to one."""
    return str(getattr(client.scheduler, "address", ""))


def check_connection(client: Client) -> None:
    """Raise PeerLost unless the client is connected to its scheduler."""
    if client.status != "running":
        where = address_of(client)
        raise PeerLost(f"the connection to the Dask scheduler {where} is lost: {client.status}")


def all_workers_s(count: int) -> float:
    """Return the time limit of a call that the scheduler forwards to `count` workers."""
    return _ALL_S + _EACH_S * count


def ask(
    client: Client,
    what: str,
    call: Callable[..., T],
    *args: Any,
    limit_s: float = CALL_S,
    **options: Any,
) -> T:
    """Return call(*args, **options), a function that sends a request to the scheduler.

    Args:
        client: Client of the scheduler.
        what: What is requested, for error messages.
        call: Function that sends the request.
        args: Arguments of `call`.
        limit_s: Seconds to wait for the answer.
        options: Keyword arguments of `call`.

    Raises:
        PeerLost: The connection to the scheduler is lost.
        PeerTimeout: There was no answer within `limit_s`.
    """
    check_connection(client)
    where = f"the Dask scheduler {address_of(client)}"
    try:
        return limited(partial(call, *args, **options), limit_s)
    except PeerTimeout:
        raise PeerTimeout(f"{where} did not answer within {limit_s:g} s ({what})") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # asyncio's CancelledError, too
        if isinstance(error, OSError) or client.status != "running":
            raise PeerLost(f"{where} is lost ({what}): {error}") from error
        raise


def limited(call: Callable[[], T], limit_s: float) -> T:
    """Run call() in another thread, wait for it at most `limit_s` seconds, and return its result.

    Raises:
        PeerTimeout: The call did not return in time; its thread keeps running.
    """
    answers: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def run() -> None:
        try:
            answers.put((True, call()))
        except BaseException as error:  # re-raised in the caller's thread
            answers.put((False, error))

    with starting("a fleet"):
        threading.Thread(target=run, name="dgkit-fleet-call", daemon=True).start()
    try:
        ok, answer = answers.get(timeout=limit_s)
    except Empty:
        raise PeerTimeout(f"no answer within {limit_s:g} s") from None
    if ok:
        return answer  # type: ignore[no-any-return]
    raise answer
