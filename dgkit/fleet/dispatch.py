# SPDX-License-Identifier: Apache-2.0
"""Jobs on the pairs of a fleet: one per machine, with retries after lost workers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import PeerLost, PeerTimeout
from .machine_leases import MachineLeases
from .scheduler_calls import address_of, ask, check_connection

if TYPE_CHECKING:
    from distributed import Client, Future

    from .pair_description import Pair
    from .pair_registry import PairRegistry

_TICK_S = 0.5  # interval between checks of the workers
_RESULT_S = 15.0  # limit for fetching results of finished jobs; a lost worker never sends its own
_LATER_S, _MOST_LATER_S = 0.5, 5.0  # first and longest delay of a retry after a side is lost
_ATTEMPTS = 3  # maximum attempts at a job whose worker is lost; Dask's own limit is the same


@dataclass(frozen=True, slots=True)
class Job:
    """A function to be called once in the worker of one pair, with these arguments.

    `key` identifies the job for the code that created it. `partner` is the name of another pair
    whose machines the job also uses.
    """

    pair: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    key: Any = None
    partner: str = ""


_Value = tuple[Any, BaseException | None]  # a job's value, or None and the error that ended it


@dataclass(frozen=True, slots=True)
class Outcome:
    """Value of a job, or the error that ended it."""

    job: Job
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class _Running:
    """A job that was submitted to Dask."""

    job: Job
    pair: Pair
    future: Future
    machines: frozenset[str]  # machines whose leases the job holds
    until: float  # time.monotonic() after which the job is given up


@dataclass(slots=True)
class _PairJobs:
    """Waiting jobs of one pair, and its failures so far; times are values of time.monotonic()."""

    waiting: deque[Job] = field(default_factory=deque)
    attempts: int = 0  # attempts so far at the job that failed last
    lost_since: float | None = None  # when the pair's other side was first found lost
    start_at: float = 0.0  # earliest start of the next job
    gone_since: float | None = None  # when the pair was first without a usable worker


class Dispatcher:
    """Runs jobs on their pairs, at most one job on a machine at a time.

    The client, not the worker, holds the leases of machines. They are released at once when the
    worker of a job is killed, and by Dask's lease timeout when the client is lost. Dask is told not
    to move a job to another worker: if a worker is lost, the job is submitted to the next worker
    that the pair gets.

    Args:
        registry: The fleet's pairs.
        jobs: The jobs; those of one pair run in this order.
        limit_s: Seconds after which an unfinished job is given up, with all jobs of its pair.
        rejoin_s: Seconds within which a lost worker, or a lost other side, has to come back.
        alone: Whether a job needs exclusive use of its machines.
        sessions: Whether a job needs a session; if false, workers without one run jobs too.
    """

    def __init__(
        self,
        registry: PairRegistry,
        jobs: Sequence[Job],
        *,
        limit_s: float,
        rejoin_s: float = 30.0,
        alone: bool = True,
        sessions: bool = True,
    ) -> None:
        self._registry = registry
        self._client: Client = registry.client
        self._limit_s, self._rejoin_s, self._alone = limit_s, rejoin_s, alone
        self._sessions = sessions
        self._pairs: dict[str, _PairJobs] = {}
        for job in jobs:
            self._pairs.setdefault(job.pair, _PairJobs()).waiting.append(job)
        self._running: dict[str, _Running] = {}  # by the future's key
        self._ended: SimpleQueue[Future] = SimpleQueue()
        self._leases = MachineLeases(self._client)
        self._stop = threading.Event()
        self._looked = 0.0

    def stop(self) -> None:
        """Stop starting jobs; outcomes() still waits for the running ones."""
        self._stop.set()

    def outcomes(self) -> Generator[Outcome, None, None]:
        """Run the jobs; yield the outcome of each as it ends.

        Raises:
            PeerLost: The scheduler is lost, or has restarted.
            PeerTimeout: The scheduler does not answer.
        """
        try:
            while self._running or (self._waiting and not self._stop.is_set()):
                if not self._stop.is_set():
                    self._start_possible()
                yield from self._take_ended()
                yield from self._check_running()
        finally:
            for each in self._running.values():
                each.future.release()
            with contextlib.suppress(Exception):  # a lost scheduler has no leases
                self._leases.close()

    @property
    def _waiting(self) -> bool:
        return any(pair.waiting for pair in self._pairs.values())

    def _start_possible(self) -> None:
        """Start the next job of each idle pair whose machines are free."""
        chosen = list(self._possible())
        granted = self._leases.acquire([machines for _, _, machines in chosen])
        for (pair, job, machines), free in zip(chosen, granted, strict=True):
            if free:
                self._pairs[pair.name].waiting.remove(job)
                self._start(pair, job, machines)

    def _possible(self) -> Iterator[tuple[Pair, Job, frozenset[str]]]:
        """Yield jobs that can start, at most one for each pair, with the machines they use.

        With `alone`, no two of these jobs use the same machine.
        """
        now = time.monotonic()
        active = {each.job.pair for each in self._running.values()}
        busy = {m for each in self._running.values() for m in each.machines}
        pairs = self._registry.by_name
        for name, jobs in self._pairs.items():
            pair = pairs.get(name)
            if name in active or pair is None or not self._serves(pair) or now < jobs.start_at:
                continue
            for job in jobs.waiting:
                machines = self._machines(pair, job)
                if machines is not None and not busy & machines:
                    busy |= machines
                    yield pair, job, machines
                    break

    def _machines(self, pair: Pair, job: Job) -> frozenset[str] | None:
        """Return the machines that a job needs exclusively; None while its partner is gone."""
        machines = pair.machines
        if job.partner:
            partner = self._registry.by_name.get(job.partner)
            if partner is None or not self._serves(partner):
                return None
            machines |= partner.machines
        return machines if self._alone else frozenset()

    def _serves(self, pair: Pair) -> bool:
        return pair.usable or (not self._sessions and bool(pair.dgkit))

    def _start(self, pair: Pair, job: Job, machines: frozenset[str]) -> None:
        try:
            future = self._client.submit(
                job.function, *job.arguments,
                workers=[pair.worker], allow_other_workers=False, pure=False, priority=10,
            )  # fmt: skip
        except TypeError as error:  # take the cause's text, as Dask's names only the task graph
            raise TypeError(
                f"the function or an argument cannot be sent to {pair.name}: "
                f"{error.__cause__ or error}"
            ) from error
        until = time.monotonic() + self._limit_s
        self._running[future.key] = _Running(job, pair, future, machines, until)
        future.add_done_callback(self._ended.put)

    def _take_ended(self) -> Iterator[Outcome]:
        """Wait up to _TICK_S for jobs to end; yield the outcomes of the jobs that ended."""
        try:
            futures = [self._ended.get(timeout=_TICK_S)]
            while not self._ended.empty():
                futures.append(self._ended.get())
        except Empty:
            return
        if any(future.status == "cancelled" and future.key in self._running for future in futures):
            self._scheduler_lost()
        ended = [self._running.pop(f.key) for f in futures if f.key in self._running]
        self._leases.release([each.machines for each in ended])
        values = self._values([each.future for each in ended if each.future.status == "finished"])
        for each in ended:
            yield from self._outcome(each, values)

    def _values(self, futures: list[Future]) -> dict[str, _Value]:
        """Return the values by keys of futures, without values that were lost with a worker."""
        client = self._client

        async def gather(some: list[Future]) -> dict[str, _Value]:
            try:
                values = await asyncio.wait_for(client.gather(some, asynchronous=True), _RESULT_S)
            except (asyncio.TimeoutError, CancelledError):
                return {}
            except Exception as error:  # a value that cannot be pickled or unpickled
                return {some[0].key: (None, error)} if len(some) == 1 else {}
            return {future.key: (value, None) for future, value in zip(some, values, strict=True)}

        async def gather_all() -> dict[str, _Value]:
            values = await gather(futures)
            if not values:
                for each in await asyncio.gather(*(gather([future]) for future in futures)):
                    values |= each
            return values

        if not futures:
            return {}
        return ask(client, "results", client.sync, gather_all, limit_s=_RESULT_S * 3)

    def _scheduler_lost(self) -> None:
        check_connection(self._client)
        raise PeerLost(
            f"the Dask scheduler {address_of(self._client)} has dropped the jobs of this client: "
            "it has restarted"
        )

    def _outcome(self, each: _Running, values: Mapping[str, _Value]) -> Iterator[Outcome]:
        """Yield the outcome of a job that has ended, unless it is queued again."""
        jobs = self._pairs[each.job.pair]
        if each.future.key in values:
            if jobs.lost_since is not None:
                self._registry.renew(each.job.pair)
            jobs.attempts, jobs.lost_since = 0, None
            yield Outcome(each.job, *values[each.future.key])
            return
        error: BaseException = _lost(each.job)
        if each.future.status == "finished":
            error = PeerLost(
                f"the result of {each.job.pair} did not come within {_RESULT_S:g} s: it is too "
                "large, or its worker was lost"
            )
        if each.future.status == "error":
            error = ask(self._client, "an error", each.future.exception)
            if isinstance(error, (PeerLost, PeerTimeout)) and self._later(each.job):
                return
        elif self._requeue(each.job):
            return
        yield Outcome(each.job, error=error)

    def _later(self, job: Job) -> bool:
        """Queue a job whose other side is lost to start after a delay; False after rejoin_s."""
        jobs, now = self._pairs[job.pair], time.monotonic()
        jobs.lost_since = jobs.lost_since or now
        jobs.attempts += 1
        if jobs.attempts >= _ATTEMPTS and now - jobs.lost_since > self._rejoin_s:
            jobs.attempts, jobs.lost_since = 0, None
            return False
        jobs.start_at = now + min(_LATER_S * jobs.attempts, _MOST_LATER_S)
        jobs.waiting.appendleft(job)
        return True

    def _requeue(self, job: Job) -> bool:
        """Queue a job for another attempt; return False after _ATTEMPTS attempts."""
        jobs = self._pairs[job.pair]
        jobs.attempts += 1
        if jobs.attempts >= _ATTEMPTS:
            return False
        jobs.waiting.appendleft(job)
        return True

    def _check_running(self) -> Iterator[Outcome]:
        """Check the connection, the workers and the time limits; yield outcomes of failed jobs."""
        now = time.monotonic()
        if now - self._looked < _TICK_S:
            return
        self._looked = now
        check_connection(self._client)
        alive = set(ask(self._client, "the workers", self._client.nthreads))
        self._registry.follow(alive)
        for key, each in list(self._running.items()):
            if each.pair.worker not in alive:
                yield from self._worker_lost(key, each)
            elif now > each.until:
                yield from self._no_result(key, each)
        yield from self._drop_lost_pairs(now)

    def _abandon(self, key: str) -> None:
        each = self._running.pop(key)
        each.future.cancel()
        self._leases.release([each.machines])

    def _worker_lost(self, key: str, each: _Running) -> Iterator[Outcome]:
        self._abandon(key)
        if not self._requeue(each.job):
            yield Outcome(each.job, error=_lost(each.job))

    def _no_result(self, key: str, each: _Running) -> Iterator[Outcome]:
        self._abandon(key)
        why = f"{each.job.pair} gave no result within {self._limit_s:g} s"
        yield Outcome(each.job, error=PeerLost(why))
        yield from self._drop(each.job.pair, why)

    def _drop(self, name: str, why: str, partner: str = "") -> Iterator[Outcome]:
        """Give up all waiting jobs of a pair or, if given, only its jobs with this partner."""
        jobs = self._pairs[name]
        for job in [each for each in jobs.waiting if partner in ("", each.partner)]:
            jobs.waiting.remove(job)
            yield Outcome(job, error=PeerLost(why))

    def _drop_lost_pairs(self, now: float) -> Iterator[Outcome]:
        """Drop the jobs of pairs whose worker cannot serve, or is gone for longer than `rejoin`."""
        pairs = self._registry.by_name
        for name, jobs in self._pairs.items():
            gone = {job.partner for job in jobs.waiting if self._unavailable(job.partner)}
            if jobs.waiting and self._unavailable(name):
                gone = {name}
            if not gone:
                jobs.gone_since = None
                continue
            jobs.gone_since = jobs.gone_since or now
            if now - jobs.gone_since > self._rejoin_s or gone & pairs.keys():
                for each in sorted(gone):
                    pair = pairs.get(each)
                    why = pair.state if pair is not None else "its worker is gone"
                    yield from self._drop(name, f"{each}: {why}", each if each != name else "")

    def _unavailable(self, name: str) -> bool:
        pair = self._registry.by_name.get(name)
        return bool(name) and (pair is None or not self._serves(pair))


def _lost(job: Job) -> PeerLost:
    return PeerLost(f"the worker of {job.pair} was lost {_ATTEMPTS} times")
