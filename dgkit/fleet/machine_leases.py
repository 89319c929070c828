# SPDX-License-Identifier: Apache-2.0
"""Leases of machines: two pairs of a machine are never measured at once, even by two clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from distributed import Semaphore

from .scheduler_calls import ask

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")

_AT_A_TIME = 8  # requests at a time; each uses a connection to the scheduler
_ALL_S, _EACH_S = 15.0, 0.05  # time limit of a call: fixed part, per lease


class MachineLeases:
    """Leases that a client holds: one per machine, acquired and released for many pairs at once.

    close() releases all of them, including those of an interrupted acquire(). If the client is
    lost, Dask's lease timeout ends them.

    Args:
        client: Client of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._semaphores: dict[str, Semaphore] = {}
        self._taken: set[str] = set()
        self._closed = False  # _taken and _closed are accessed in the client's loop only

    def acquire(self, wanted: Sequence[frozenset[str]]) -> list[bool]:
        """Acquire the machines of each pair, all or none; return for each pair whether it has them.

        Raises:
            PeerLost, PeerTimeout: The scheduler is lost or does not answer.
        """
        return self._on_loop("leases of machines", self._acquire, wanted)

    def release(self, taken: Sequence[frozenset[str]]) -> None:
        """Release the machines of pairs.

        Raises:
            PeerLost, PeerTimeout: The scheduler is lost or does not answer.
        """
        self._on_loop("the end of leases", self._release, taken)

    def close(self) -> None:
        """Release all machines; later calls acquire none.

        Raises:
            PeerLost, PeerTimeout: The scheduler is lost or does not answer.
        """
        self._on_loop("the end of leases", self._close, [None])

    def _on_loop(self, what: str, call: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Await call(item) for each item in the client's loop, at most _AT_A_TIME at once."""
        if not items:
            return []

        async def limited(item: T, limit: asyncio.Semaphore) -> R:
            async with limit:
                return await call(item)

        async def gather() -> list[R]:
            limit = asyncio.Semaphore(_AT_A_TIME)
            return await asyncio.gather(*(limited(item, limit) for item in items))

        limit_s = _ALL_S + _EACH_S * len(items)
        return ask(self._client, what, self._client.sync, gather, limit_s=limit_s)

    async def _acquire(self, machines: frozenset[str]) -> bool:
        taken: list[str] = []
        for machine in sorted(machines):
            free = await self._semaphore(machine).acquire(timeout=0)  # a coroutine in the loop
            if free:
                self._taken.add(machine)
                taken.append(machine)
            if not free or self._closed:
                await self._release(taken)
                return False
        return True

    async def _release(self, machines: Iterable[str]) -> None:
        for machine in machines:
            if machine in self._taken:
                self._taken.remove(machine)
                await self._semaphores[machine].release()

    async def _close(self, _: None) -> None:
        self._closed = True
        await self._release(tuple(self._taken))

    def _semaphore(self, machine: str) -> Semaphore:
        if machine not in self._semaphores:
            self._semaphores[machine] = Semaphore(
                max_leases=1, name=f"dgkit-machine-{machine}",
                scheduler_rpc=self._client.scheduler, loop=self._client.loop,
            )  # fmt: skip
        return self._semaphores[machine]
