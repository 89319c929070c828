# SPDX-License-Identifier: Apache-2.0
"""Registry of a fleet's pairs: the description of each worker of the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distributed import wait

from ..errors import PeerLost
from .cluster_checks import check_encryption
from .pair_description import Pair, named_pairs
from .pair_plugin import describe
from .scheduler_calls import address_of, ask

if TYPE_CHECKING:
    from distributed import Client, Future

_DESCRIBE_S = 30.0  # long enough for a worker that is busy or starts a software DPU


class PairRegistry:
    """Pairs of a cluster, updated as workers join and leave.

    Args:
        client: Client of the cluster.
        plugin: Name of the worker plugin that holds the sessions.
        insecure: Accept workers that other machines can reach without TLS.
    """

    def __init__(self, client: Client, plugin: str, *, insecure: bool) -> None:
        self.client = client
        self.plugin = plugin
        self._insecure = insecure
        self._found: dict[str, Mapping[str, Any] | str] = {}
        self.pairs: tuple[Pair, ...] = ()
        self._named: tuple[tuple[Pair, ...], dict[str, Pair]] = ((), {})

    @property
    def by_name(self) -> dict[str, Pair]:
        """The pairs by name."""
        if self._named[0] is not self.pairs:
            self._named = self.pairs, {pair.name: pair for pair in self.pairs}
        return self._named[1]

    def refresh(self) -> None:
        """Query every worker again for its description."""
        self._found.clear()
        self.follow(self.workers())

    def workers(self) -> set[str]:
        """Return the addresses of the workers.

        Raises:
            PeerRefused: An address is reachable without TLS, and `insecure` is false.
        """
        found = set(ask(self.client, "the workers", self.client.nthreads))
        if not self._insecure:
            check_encryption([address_of(self.client), *sorted(found)])
        return found

    def follow(self, alive: set[str]) -> None:
        """Query the descriptions of workers that have joined, and forget workers that have left."""
        if alive != set(self._found):
            self._found = {w: each for w, each in self._found.items() if w in alive}
            self._describe(alive - set(self._found))

    def renew(self, name: str) -> None:
        """Query a pair's worker again, after its other side was replaced by another process."""
        pair = self.by_name.get(name)
        if pair is not None and self._found.pop(pair.worker, None) is not None:
            self._describe({pair.worker})

    def _describe(self, workers: set[str]) -> None:
        """Query workers for their descriptions, and rename all pairs."""
        futures = {worker: self._submit(worker) for worker in workers}
        with contextlib.suppress(TimeoutError):
            wait(list(futures.values()), timeout=_DESCRIBE_S)
        for worker, future in futures.items():
            self._found[worker] = self._answer(future)
            future.release()
        self.pairs = named_pairs(self._found)

    def _submit(self, worker: str) -> Future:
        return self.client.submit(
            describe, self.plugin,
            workers=[worker], allow_other_workers=False, pure=False, priority=20,
        )  # fmt: skip

    def _answer(self, future: Future) -> Mapping[str, Any] | str:
        if future.status == "finished":
            found: Mapping[str, Any] = ask(self.client, "a description", future.result)
            return found
        if future.status == "error":
            error = ask(self.client, "an error", future.exception)
            if "deserialization" in str(error):  # the worker cannot import describe()
                return "its Python has no dgkit, or one that lacks the extra fleet"
            return f"{type(error).__name__}: {error}"
        if future.status == "cancelled":
            raise PeerLost(f"the Dask scheduler {address_of(self.client)} has restarted")
        return f"no answer within {_DESCRIBE_S:g} s: the worker hangs or is busy"
