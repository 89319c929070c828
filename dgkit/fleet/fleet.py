# SPDX-License-Identifier: Apache-2.0
"""Fleet: the pairs of a Dask cluster."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Signature, signature
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import Client

from .. import html_cards
from ..doctor.api import parse_goal
from ..doctor.collect.snapshot import RecordedReader, Snapshot
from ..doctor.machine import Machine
from ..errors import ClosedError, DgkitError, PeerError, PeerLost
from ..units import plural
from ..validate import real
from .cluster_checks import version_differences
from .diagnosis_groups import FleetDiagnosis, judge, record_here
from .dispatch import Dispatcher, Job
from .pair_description import Pair
from .pair_plugin import PairPlugin, session_here
from .pair_registry import PairRegistry
from .scheduler_calls import address_of, all_workers_s, ask
from .sweep import Sweep, SweepOptions

if TYPE_CHECKING:
    import pandas

F = TypeVar("F", bound=Callable[..., Any])

_NO_MODULE = "No module named 'dgkit"  # in Dask's error if a worker cannot unpickle the plugin
_RECORD_S = 90.0  # limit for recording one machine; the doctor's own limit is 60 s
_MOST_S = 1_000_000  # largest accepted limit


def _sweep_signature(method: F) -> F:
    """Show the fields of SweepOptions as parameters of the method, in help() and in notebooks."""
    own = signature(method).parameters.values()
    first, *named = [p for p in own if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    shown = Signature([first, *signature(SweepOptions).parameters.values(), *named])
    method.__signature__ = shown  # type: ignore[attr-defined]
    return method


class Fleet:
    """All pairs of host and DPU of a Dask cluster.

    Each worker opens a session with the agent that `agents` names for it, or else with a software
    DPU of its own. Workers that join later become pairs too. Fleets of one cluster with the same
    arguments share their sessions; closing any of these fleets closes the sessions.

    Args:
        client: Client of the cluster: `distributed.Client(...)`.
        agents: Addresses of agents (`dgkit serve`), by the worker's name or its host.
        provider: Provider that moves the bytes, as for dgkit.connect().
        keys: Name of the key pair on each worker's machine, for tcp://; keys are never sent.
        insecure: Accept a cluster that other machines can reach without TLS.

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
            raise TypeError(f"client is {client!r}; it must be a synchronous distributed.Client")
        self.client = client
        self._plugin = _plugin or PairPlugin(agents, provider, keys)
        self._closed = False
        self._registry = PairRegistry(client, self._plugin.name, insecure=insecure)
        workers = len(self._registry.workers())  # checks TLS before anything is sent to workers
        self.differences = version_differences(client, workers)
        try:
            ask(
                client, "the sessions", client.register_plugin, self._plugin, self._plugin.name,
                limit_s=all_workers_s(workers),
            )  # fmt: skip
        except DgkitError:
            raise
        except Exception as error:  # a worker without dgkit is reported in the table
            if not (isinstance(error, (ImportError, AttributeError)) or _NO_MODULE in str(error)):
                raise
        self._registry.refresh()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs, usable or not, sorted by name."""
        return self._registry.pairs

    @property
    def usable(self) -> tuple[Pair, ...]:
        """The pairs that can be measured."""
        return tuple(pair for pair in self.pairs if pair.usable)

    @property
    def plugin_name(self) -> str:
        """Name of the worker plugin, by which a job finds its session."""
        return self._plugin.name

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each pair: its two sides, provider, versions, and why it is unusable."""
        import pandas as pd

        names = ("name", "host", "role", "dpu", "provider", "label", "engine", "arch", "dgkit")
        rows = [{n: getattr(pair, n) for n in (*names, "state")} for pair in self.pairs]
        return pd.DataFrame(rows, columns=[*names, "state"])

    def refresh(self) -> None:
        """Query every worker again for its role, provider and versions."""
        self._check_open()
        self._registry.refresh()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the fleet is closed")

    @_sweep_signature
    def start_sweep(self, *arguments: Any, **options: Any) -> Sweep:
        """Start a sweep in the background; arguments and errors as for sweep()."""
        self._check_open()
        given = SweepOptions(*arguments, **options)
        if given.pairs == "all":
            return Sweep(self._registry, self._combined(), given)
        return Sweep(self._registry, [(name, "") for name in self._chosen(given.pairs)], given)

    @_sweep_signature
    def sweep(
        self, *arguments: Any, progress: Callable[[int, int], None] | None = None, **options: Any
    ) -> Sweep:
        """Measure latency and rate of each pair, never two on one machine at a time, and wait.

        Ctrl-C stops the sweep; the rows measured until then are in the folder, if one is given.

        Args:
            arguments, options: Fields of dgkit.fleet.SweepOptions: sizes, ops, paths and pairs;
                the other fields by keyword.
            progress: Called with the number of rows measured so far, and the total.

        Raises:
            ValueError: An argument is wrong, or the folder holds another sweep, or holds this sweep
                and `resume` is false.
            PeerLost: The scheduler is lost; `resume` continues from the folder.
        """
        started = self.start_sweep(*arguments, **options)
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
        """Return each pair alone, and each host (or DPU) with the agent of every other pair."""
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
        """Call `function(session, *arguments)` in the worker of each pair, and wait.

        Args:
            function: Function to call; Dask sends it to the workers.
            arguments: Further arguments, the same for all pairs.
            pairs: As for sweep().
            alone: Run at most one call at a time on each machine.
            limit: Seconds to wait for a pair's result.

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

    def doctor(self, goal: str | None = None) -> FleetDiagnosis:
        """Read all machines, judge each host with its DPU, and group the machines by verdict.

        Nothing is changed on the machines. In the readings that they send, names are replaced by
        pseudonyms.

        Args:
            goal: As for dgkit.doctor(); None chooses a goal for each machine.

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
        """Store a snapshot of each machine in a folder, with pseudonyms, so that it can be shared.

        The files are called machine-1.json and so on; a host and its DPU have matching pseudonyms.

        Returns:
            The file of each machine, by the machine's name.

        Raises:
            FileExistsError: The folder already has snapshots.
            PeerLost: A machine could not be read; the snapshots of the others are in the folder.
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
        """Return snapshots by machine name, and the reasons for machines that were not read."""
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
        # A scheduler that has restarted does not know the plugin.
        with contextlib.suppress(PeerError, ValueError, KeyError):
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
    """Call a user's function in a worker so that no exception that it raises ends the worker."""
    session = session_here(plugin)
    try:
        return function(session, *arguments)
    except Exception:
        raise
    except BaseException as error:  # Dask ends a worker after SystemExit or KeyboardInterrupt
        raise RuntimeError(f"the function raised {error!r}") from None
