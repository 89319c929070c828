"""Fleet: the pairs of a Dask cluster."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from distributed import Client

from .. import html_cards
from ..doctor.api import parse_goal
from ..doctor.collect.snapshot import RecordedReader, Snapshot
from ..doctor.machine import Machine
from ..errors import ClosedError, DgkitError, PeerError, PeerLost
from ..units import parse_size, plural
from ..validate import real, whole
from .cluster_checks import version_differences
from .diagnosis_groups import FleetDiagnosis, judge, record_here
from .dispatch import Dispatcher, Job
from .pair import Pair
from .pair_plugin import PairPlugin, session_here
from .pair_registry import PairRegistry
from .scheduler_calls import address_of, all_workers_s, ask
from .soak import SoakReport, soak
from .sweep import Plan, Sweep

if TYPE_CHECKING:
    import pandas

__all__ = ["Fleet"]

_NO_MODULE = "No module named 'dgkit"  # how Dask passes on what it cannot unpickle
_RECORD_S = 60.0  # the doctor's own limit is 10 s
_LEAST_HOURS = 1e-9
_MOST_S = 1_000_000  # of a limit


class Fleet:
    """All pairs of host and DPU of a Dask cluster.

    Each worker opens a session: with the agent that `agents` names for it, else with a separate
    software DPU. Workers that join later are pairs, too. Fleets of one cluster with the same
    arguments share their sessions; close() of one ends them.

    Args:
        client: Client of the cluster: `distributed.Client(...)`.
        agents: Addresses of agents (`dgkit serve`), by the worker's name or its host.
        provider: How bytes move, as for dgkit.connect().
        keys: Name of the key pair on each worker's machine, for tcp; keys are never sent.
        insecure: Accept a cluster that other machines reach without TLS.

    Raises:
        PeerRefused: The cluster is reachable without TLS.
        PeerLost, PeerTimeout: The scheduler is lost or does not answer.
    """

    def __init__(
        self,
        client: Client,
        *,
        agents: Mapping[str, str] | None = None,
        provider: str = "soft",
        keys: str | None = None,
        insecure: bool = False,
        _plugin: PairPlugin | None = None,
    ) -> None:
        if not isinstance(client, Client) or client.asynchronous:
            raise TypeError(f"client is {client!r}; it must be a distributed.Client, synchronous")
        self.client = client
        self._plugin = _plugin or PairPlugin(agents, provider, keys)
        self._closed = False
        self._registry = PairRegistry(client, self._plugin.name, insecure=insecure)
        workers = len(self._registry.workers())  # checked before anything is sent to them
        self.differences = version_differences(client, workers)
        try:
            ask(
                client, "the sessions", client.register_plugin, self._plugin, self._plugin.name,
                limit_s=all_workers_s(workers),
            )  # fmt: skip
        except DgkitError:
            raise
        except Exception as error:  # of a worker without dgkit, which the table then says
            if not (isinstance(error, (ImportError, AttributeError)) or _NO_MODULE in str(error)):
                raise
        self._registry.refresh()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs, sorted by name, those that cannot be used included."""
        return self._registry.pairs

    @property
    def usable(self) -> tuple[Pair, ...]:
        """The pairs that can be measured."""
        return tuple(pair for pair in self.pairs if pair.usable)

    @property
    def plugin_name(self) -> str:
        """Name of the worker plugin, which jobs find their session by."""
        return self._plugin.name

    @property
    def table(self) -> pandas.DataFrame:
        """A row for each pair: who is there, what works, what differs."""
        import pandas as pd

        names = ("name", "host", "role", "dpu", "provider", "label", "engine", "arch", "dgkit")
        rows = [{n: getattr(pair, n) for n in (*names, "state")} for pair in self.pairs]
        return pd.DataFrame(rows, columns=[*names, "state"])

    def refresh(self) -> None:
        """Ask all workers again what they are."""
        self._check_open()
        self._registry.refresh()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the fleet is closed")

    def start_sweep(
        self,
        sizes: Sequence[int | str] = ("64", "4K", "64K", "1M"),
        ops: Sequence[str] = ("write", "read"),
        paths: Sequence[str] = ("auto",),
        pairs: str | Sequence[str] = "own",
        *,
        on: str = "host",
        count: int = 10_000,
        seconds: float = 0.2,
        folder: str | PathLike[str] | None = None,
        resume: bool = False,
        limit: float | None = None,
        rejoin: float = 30.0,
    ) -> Sweep:
        """Start a sweep in the background; see sweep()."""
        self._check_open()
        chosen = self._combined() if pairs == "all" else [(n, "") for n in self._chosen(pairs)]
        plan = Plan.of(sizes, ops, paths, on=on, count=count, seconds=seconds)
        return Sweep(
            self._registry,
            plan,
            chosen,
            folder=folder,
            resume=resume,
            limit_s=limit,
            rejoin_s=rejoin,
        )

    def sweep(
        self,
        sizes: Sequence[int | str] = ("64", "4K", "64K", "1M"),
        ops: Sequence[str] = ("write", "read"),
        paths: Sequence[str] = ("auto",),
        pairs: str | Sequence[str] = "own",
        *,
        on: str = "host",
        count: int = 10_000,
        seconds: float = 0.2,
        folder: str | PathLike[str] | None = None,
        resume: bool = False,
        limit: float | None = None,
        rejoin: float = 30.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Sweep:
        """Measure latency and rate of each pair, never two on one machine at a time, and wait.

        Ctrl-C stops it; what was measured is in the folder.

        Args:
            sizes: Bytes of one transfer, as numbers or texts such as "64K".
            ops: "write" and "read", seen from the DPU.
            paths: "auto", "inline", "worker".
            pairs: "own": each worker with its own DPU; "all": also with the agents of all other
                pairs, in rows such as `node1/0 with node2/0`; or names of some pairs.
            on: Where the regions are, as for Session.empty().
            count: Samples of a latency; fewer for large sizes.
            seconds: Duration of a rate's measurement.
            folder: Folder for Parquet files, one for each pair, op and path; made if it is missing.
            resume: Go on from the files of the folder, which the same sweep must have written.
            limit: Seconds after which a pair's answer is not waited for; None: by the plan.
            rejoin: Seconds that a lost worker, or a DPU that reboots, has to come back.
            progress: Called with the number of rows that are there, and of all.

        Raises:
            ValueError: An argument is wrong, or the folder has another sweep, or one to resume.
            PeerLost: The scheduler is lost; `resume` goes on from the folder.
        """
        started = self.start_sweep(
            sizes, ops, paths, pairs, on=on, count=count, seconds=seconds, folder=folder,
            resume=resume, limit=limit, rejoin=rejoin,
        )  # fmt: skip
        try:
            started.wait(progress=progress)
        except BaseException:
            started.stop()
            raise
        return started

    def _chosen(self, pairs: str | Sequence[str]) -> tuple[str, ...]:
        """Return the names of the pairs to use.

        Raises:
            ValueError: A name is unknown, or no pair can be used.
        """
        if isinstance(pairs, str):
            if pairs != "own":
                raise ValueError(f"pairs is {pairs!r}; it must be 'own' or a list of names")
            names = tuple(pair.name for pair in self.usable)
        else:
            if not isinstance(pairs, Iterable):
                raise TypeError(f"pairs is {pairs!r}; it must be 'own' or a list of names")
            names = tuple(dict.fromkeys(pairs))
            if not names:
                raise ValueError(f"pairs is {pairs!r}; it must be 'own' or name a pair")
            if unknown := [name for name in names if name not in self._registry.by_name]:
                raise ValueError(f"there is no pair {unknown[0]!r}; see the fleet's table")
        if not names:
            raise ValueError(f"no pair can be used: {self._line()}")
        return names

    def _combined(self) -> list[tuple[str, str]]:
        """Return each pair alone, and with each other one of the same side that has an agent."""
        alone = [(name, "") for name in self._chosen("own")]
        crossed = [
            (pair.name, other.name)
            for pair in self.usable
            for other in self.usable
            if pair is not other and pair.role == other.role and other.agent
            if pair.agent != other.agent
        ]
        return alone + crossed

    def map(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        pairs: str | Sequence[str] = "own",
        alone: bool = True,
        limit: float = 600.0,
    ) -> dict[str, Any]:
        """Call function(session, *arguments) in the worker of each pair, and wait.

        Args:
            function: Function to call; Dask sends it to the workers.
            arguments: Further arguments, the same for all pairs.
            pairs: As for sweep().
            alone: Run one at a time on each machine.
            limit: Seconds after which a pair's answer is not waited for.

        Returns:
            Each pair's result, or the exception that ended it, by name.
        """
        self._check_open()
        if not callable(function):
            raise TypeError(f"function is {function!r}; it must be callable")
        limit = real("limit", limit, 0.001, _MOST_S)
        jobs = [
            Job(name, _with_session, (self.plugin_name, function, arguments))
            for name in self._chosen(pairs)
        ]
        done = Dispatcher(self._registry, jobs, limit_s=limit, alone=alone).outcomes()
        found = {each.job.pair: each.value if each.error is None else each.error for each in done}
        return {job.pair: found[job.pair] for job in jobs}

    def soak(
        self,
        hours: float,
        pairs: str | Sequence[str] = "own",
        *,
        size: int | str = "1M",
        progress: Callable[[float, float], None] | None = None,
    ) -> SoakReport:
        """Write, hash by the DPU, read back and compare on each pair for hours, and wait.

        The pairs of a machine take turns of 5 s. A pair that fails is tried again in its next turn.
        Ctrl-C ends it: the report has what was compared until then, and `stopped` is true.

        Args:
            hours: Duration; each pair has one turn at least.
            pairs: As for sweep().
            size: Bytes of a round.
            progress: Called with the seconds that have passed, and all.

        Raises:
            ValueError: An argument is wrong.
            PeerLost: The scheduler is lost; the message has the sums until then.
        """
        self._check_open()
        hours = real("hours", hours, _LEAST_HOURS, 10_000)
        n_bytes = parse_size(size) if isinstance(size, str) else whole("size", size, 1)
        names = self._chosen(pairs)
        return soak(self._registry, names, seconds=3600 * hours, size=n_bytes, progress=progress)

    def doctor(self, goal: str | None = None) -> FleetDiagnosis:
        """Read all machines, judge each host with its DPU, and group them by verdict.

        Nothing is changed on them. What is read travels with pseudonyms instead of names.

        Args:
            goal: As for dgkit.doctor(); None chooses one for each machine.

        Raises:
            ValueError: There is no such goal.
        """
        wanted = parse_goal(goal)
        snapshots, failures = self._snapshots()
        machines = {
            name: Machine(RecordedReader(snapshot), name) for name, snapshot in snapshots.items()
        }
        found = {}
        for names in self._together(machines):
            for diagnosis in judge([machines[name] for name in names], wanted):
                sides = (diagnosis.case.host, diagnosis.case.dpu)
                found[" with ".join(side.name for side in sides if side)] = diagnosis
        return FleetDiagnosis(found, failures)

    def record(self, folder: str | PathLike[str]) -> dict[str, Path]:
        """Store a snapshot of each machine in a folder, fit to be shared.

        The files are called machine-1.json and so on; a host and its DPU have matching pseudonyms.

        Returns:
            The file of each machine, by its name.

        Raises:
            FileExistsError: A file exists.
            PeerLost: A machine could not be read; the others are in the folder.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if old := sorted(place.glob("machine-*.json")):
            raise FileExistsError(f"{old[0]} exists: use another folder")
        snapshots, failures = self._snapshots()
        files = {name: place / f"machine-{n}.json" for n, name in enumerate(snapshots, 1)}
        for name, file in files.items():
            snapshots[name].save(file)
        if failures:
            raise PeerLost("; ".join(f"{name}: {why}" for name, why in failures.items()))
        return files

    def _snapshots(self) -> tuple[dict[str, Snapshot], dict[str, str]]:
        """Return a snapshot of each machine by the host's name, and why others have none."""
        self._check_open()
        chosen: dict[str, Pair] = {}
        for pair in self.pairs:
            if pair.dgkit:
                chosen.setdefault(pair.machine, pair)
        word = token_hex(16)
        jobs = [Job(pair.name, record_here, (word,)) for pair in chosen.values()]
        found, failures = {}, {p.name: p.state for p in self.pairs if not p.dgkit}
        names = self._registry.by_name
        for each in Dispatcher(
            self._registry, jobs, limit_s=_RECORD_S, alone=False, sessions=False
        ).outcomes():
            name = names[each.job.pair].host
            if each.error is None:
                found[name if name not in found else each.job.pair] = each.value
            else:
                failures[name] = f"{type(each.error).__name__}: {each.error}"
        return {name: found[name] for name in sorted(found)}, failures

    def _together(self, machines: Mapping[str, Machine]) -> list[tuple[str, ...]]:
        """Return the names of machines to judge together: a host with its DPU, or one alone."""
        ends = (tuple(dict.fromkeys((p.host, p.other))) for p in self.pairs if p.other)
        joined = [both for both in dict.fromkeys(ends) if all(name in machines for name in both)]
        left = set(machines) - {name for both in joined for name in both}
        return [*joined, *((name,) for name in sorted(left))]

    def close(self) -> None:
        """Close the sessions of all workers, which ends their software DPUs. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self.client.status != "running":
            return
        with contextlib.suppress(PeerError, ValueError, KeyError):  # unknown to a new scheduler
            ask(
                self.client, "the end of the sessions",
                self.client.unregister_worker_plugin, self.plugin_name,
                limit_s=all_workers_s(len(self.pairs)),
            )  # fmt: skip

    def __enter__(self) -> Fleet:
        self._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _line(self) -> str:
        counts = Counter(pair.state or pair.label for pair in self.pairs)
        return ", ".join(f"{n} {text}" for text, n in counts.most_common()) or "no workers"

    def __repr__(self) -> str:
        return f"<Fleet of {plural(len(self.pairs), 'pair')}: {self._line()}>"

    def _repr_html_(self) -> str:
        header = ("pair", "role", "DPU", "provider", "machine", "dgkit", "state")
        rows = [
            (p.name, p.role, p.dpu, p.provider, f"{p.host}, {p.arch}", p.dgkit, p.state or "usable")
            for p in self.pairs
        ]
        return html_cards.card(
            "dgkit fleet",
            [("pairs", self._line()), ("scheduler", address_of(self.client))],
            note="; ".join(self.differences[:3]),
            body=html_cards.table("pairs", header, rows),
        )


def _with_session(plugin: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a user's function in a worker, which no exception of it may end."""
    session = session_here(plugin)
    try:
        return function(session, *arguments)
    except Exception:
        raise
    except BaseException as error:  # SystemExit and its like, after which Dask ends a worker
        raise RuntimeError(f"the function raised {error!r}") from None
