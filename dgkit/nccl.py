# SPDX-License-Identifier: Apache-2.0
"""NCCL's RMA plugin: where it is, what makes NCCL load it, and a test of it without NCCL.

NCCL 2.30.3 and later hand the puts, gets and signals that kernels post (GIN) to such a plugin, if
no network adapter takes them from the GPU itself. dgkit's is a C library, over the C core.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from .child import bound, start_program
from .dma import measure
from .files import beside_core
from .html_cards import Html, table
from .unique import Closable
from .units import size_text, us

__all__ = [
    "Batches",
    "Peer",
    "Rank",
    "Ranks",
    "Run",
    "Transfers",
    "environment",
    "plugin_path",
    "selftest",
    "selftest_command",
    "statistics",
]

_FLOOR_SAMPLES = 200
_FOLLOW_S = 0.5  # interval of Run.follow()


def plugin_path() -> Path:
    """Return the path of libnccl-rma-dgkit.so.

    Raises:
        FileNotFoundError: It is not installed.
    """
    return _installed_file("libnccl-rma-dgkit.so")


def environment(
    statistics_folder: str | os.PathLike[str] | None = None,
    *,
    dpu: str | None = None,
    copy_service: bool = False,
) -> dict[str, str]:
    """Return the environment variables with which NCCL loads the plugin.

    NCCL_MULTI_RANK_GPU_ENABLE allows several ranks on one GPU.

    Args:
        statistics_folder: Folder to which each rank writes what it transfers, for statistics().
        dpu: Address of an agent of this machine (`dgkit serve`), whose process then moves the
            bytes; it needs the provider cuda for memory on a GPU. NCCL's process moves them if
            None.
        copy_service: Whether a kernel makes small copies on the GPU, up to 16 KiB, instead of the
            copy engine. While it runs it takes up 1,024 threads of one multiprocessor; it ends
            0.5 ms after the last copy, and what waits for all kernels of the process waits for
            that. For GPUs that one process uses.

    Raises:
        ValueError: Both `dpu` and `copy_service` are given.
    """
    if dpu is not None and copy_service:
        raise ValueError("copy_service is for NCCL's own process, and dpu makes another one copy")
    variables = {
        "NCCL_RMA_PLUGIN": str(plugin_path()),
        "NCCL_GIN_TYPE": "2",  # NCCL's proxy takes the operations from the kernel
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }
    if statistics_folder is not None:
        variables["DGKIT_NCCL_STATISTICS"] = str(Path(statistics_folder).absolute())
    if dpu is not None:
        variables["DGKIT_NCCL_DPU"] = dpu
    if copy_service:
        variables["DGKIT_NCCL_COPY_SERVICE"] = "1"
    return variables


@dataclass(frozen=True, slots=True)
class Transfers:
    """Requests of one kind to one peer.

    A latency is the time from NCCL's call to the plugin until the plugin has found the request
    finished: for a signal, until it has been added. It depends on how often NCCL's proxy calls.

    Attributes:
        count: Number of requests that succeeded.
        bytes: Their bytes.
        gpu: Number of those with memory on a GPU.
        mean_ns: Mean latency; 0 if there were none, as the other two.
        p50_ns: Median of the latency, to 6 %.
        p99_ns: 99th percentile of the latency, to 6 %.
    """

    count: int
    bytes: int
    gpu: int = 0
    mean_ns: int = 0
    p50_ns: int = 0
    p99_ns: int = 0

    @property
    def floor_ns(self) -> int | None:
        """Median of the time that this machine needs for the mean size without NCCL and dgkit.

        A second thread sees a word and copies with memcpy. None without requests, or where memory
        was a GPU's.
        """
        if not self.count or self.gpu:
            return None
        return _floor_ns(1 << max(self.bytes // self.count - 1, 0).bit_length())

    def __str__(self) -> str:
        if not self.count:
            return "-"
        floor = "" if self.floor_ns is None else f", floor {us(self.floor_ns)} us"
        return f"{self.count} ({size_text(self.bytes)}), p50 {us(self.p50_ns)} us{floor}"


@cache
def _floor_ns(size: int) -> int:
    """Measure once for each size, a power of two."""
    two_cpus = len(os.sched_getaffinity(0)) > 1
    return sorted(measure.floor(size, _FLOOR_SAMPLES, handoff=two_cpus))[_FLOOR_SAMPLES // 2]


@dataclass(frozen=True, slots=True)
class Peer:
    """Transfers of a rank to and from one peer.

    Attributes:
        puts: Puts without a signal.
        signals: Signals, with a put or alone.
        gets: Gets.
        failed: Number of requests that failed.
    """

    puts: Transfers
    signals: Transfers
    gets: Transfers
    failed: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Work that the plugin did for several requests at once.

    Attributes:
        count: Number of batches.
        items: Requests in all of them, or words.
        call_ns: Time in the calls that started them.
        busy_ns: Time during which at least one was in progress.
    """

    count: int
    items: int
    call_ns: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's communicator.

    Attributes:
        rank: Its number.
        ranks: Number of ranks.
        pid: Its process.
        closed: Whether it is closed; otherwise it runs, or its process was killed.
        peers: By rank; a rank may put to itself.
        open_ns: Time since the communicator was opened.
        passes: How often NCCL's proxy called for progress.
        submissions: Requests that were given to the engine that moves the bytes, together.
        signal_writes: Words in GPU memory to which signals were added, together.
    """

    rank: int
    ranks: int
    pid: int
    closed: bool
    peers: tuple[Peer, ...]
    open_ns: int
    passes: int
    submissions: Batches
    signal_writes: Batches


class Ranks(tuple[Rank, ...]):
    """The communicators of a folder, by rank. Shown as a coloured matrix in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        most = max((rank.ranks for rank in self), default=0)
        brightest = max((_moved(peer) for rank in self for peer in rank.peers), default=0)
        return str(
            table(
                "NCCL's puts, signals and gets by dgkit: from rank (row) to rank (column)",
                ["from", *map(str, range(most))],
                [
                    [f"rank {rank.rank}", *(_square(peer, brightest) for peer in rank.peers)]
                    for rank in self
                ],
            )
        )


def _moved(peer: Peer) -> int:
    return sum(kind.bytes for _, kind in _kinds(peer))


def _square(peer: Peer, brightest: int) -> Html:
    """Return a square with the bytes moved, coloured by them; pointing at it shows the rest."""
    rest = "; ".join(f"{name} {kind}" for name, kind in _kinds(peer) if kind.count)
    text = size_text(_moved(peer)) + f", {peer.failed} failed" * bool(peer.failed)
    colour = f"rgba(30, 136, 229, {0.6 * _moved(peer) / max(brightest, 1):.2f})"
    edge = "2px solid #d32f2f" if peer.failed else "2px solid transparent"
    style = f"display:block;padding:12px 8px;background:{colour};border:{edge};text-align:center"
    return Html(f'<span style="{style}" title="{escape(rest)}">{escape(text)}</span>')


def _kinds(peer: Peer) -> tuple[tuple[str, Transfers], ...]:
    return ("puts", peer.puts), ("signals", peer.signals), ("gets", peer.gets)


def statistics(folder: str | os.PathLike[str]) -> Ranks:
    """Return what the ranks have transferred that write to a folder: see environment().

    A rank replaces its figures five times a second, and once more when it is closed. They stay in
    the folder.
    """
    found = (json.loads(path.read_bytes()) for path in Path(folder).glob("rank-*.json"))
    return Ranks(sorted(map(_parse_rank, found), key=lambda rank: (rank.rank, rank.pid)))


def _parse_rank(value: dict[str, Any]) -> Rank:
    peers = tuple(
        Peer(
            Transfers(**peer["puts"]),
            Transfers(**peer["signals"]),
            Transfers(**peer["gets"]),
            peer["failed"],
        )
        for peer in value["peers"]
    )
    return Rank(
        value["rank"],
        value["ranks"],
        value["pid"],
        value["closed"],
        peers,
        value["open_ns"],
        value["passes"],
        Batches(**value["submissions"]),
        Batches(**value["signal_writes"]),
    )


class Run(Closable):
    """A program that runs with the plugin, and what its ranks transfer. Shown as a matrix.

    Args:
        command: The program and its arguments: one that uses NCCL's device API, or
            selftest_command().
        dpu: Address of the agent that moves the bytes: see environment().
        variables: More environment variables.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        dpu: str | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dgkit-nccl-")
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by close())
        given = environment(self._folder.name, dpu=dpu) | (variables or {})
        try:
            self._process = start_program(command, self._output, os.environ | given)
        except OSError:
            self.close()
            raise

    @property
    def ranks(self) -> Ranks:
        """Figures of the ranks, at most 0.2 s old."""
        return statistics(self._folder.name)

    @property
    def returncode(self) -> int | None:
        """The program's exit status; None while it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """Text that the program has printed."""
        self._output.flush()
        return os.pread(self._output.fileno(), 1 << 20, 0).decode(errors="replace")

    def follow(self) -> Iterator[Run]:
        """Yield this run twice a second until the program has ended, and then once more."""
        while self.returncode is None:
            yield self
            time.sleep(_FOLLOW_S)
        yield self

    def wait(self, timeout: float | None = None) -> int:
        """Return the program's exit status when it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not after `timeout` seconds.
        """
        return self._process.wait(timeout)

    def close(self) -> None:
        """Kill the program if it runs, and remove its figures. Idempotent."""
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        self._output.close()
        self._folder.cleanup()

    def _repr_html_(self) -> str:
        code = self.returncode
        state = "running" if code is None else f"ended with status {code}"
        return f"{self.ranks._repr_html_()}<p>{state}</p>"


def selftest_command(
    ranks: int = 4,
    *,
    rounds: int = 100,
    seed: int = 1,
    processes: bool = False,
    kill: bool = False,
    gpu: bool = False,
) -> list[str]:
    """Return the command line of selftest(), for Run."""
    command = [_installed_file("nccl-selftest"), "--plugin", plugin_path(), "--ranks", ranks]
    command += ["--rounds", rounds, "--seed", seed]
    flags = {"--processes": processes, "--kill": kill, "--gpu": gpu}
    return list(map(str, [*command, *(flag for flag, given in flags.items() if given)]))


def selftest(
    ranks: int = 4,
    *,
    rounds: int = 100,
    seed: int = 1,
    processes: bool = False,
    kill: bool = False,
    gpu: bool = False,
    dpu: str | None = None,
) -> dict[str, Any]:
    """Drive the plugin in the place of NCCL, and check each byte and each counter.

    Args:
        ranks: Number of ranks, 1 to 16; 2 at least with `kill`.
        rounds: Number of rounds of 12 random operations a rank.
        seed: Of the operations.
        processes: Whether the ranks are processes; threads otherwise.
        kill: Whether a rank is killed in the end, which the others must notice within 2 s. Needs
            `processes`.
        gpu: Whether the memory is the first GPU's.
        dpu: Address of the agent that moves the bytes: see environment().

    Returns:
        What was done: the counts `puts`, `gets`, `signals`, `bytes` and `refused_calls`, and
        `loss_noticed_ms`.

    Raises:
        AssertionError: Something was wrong; the message says what.
    """
    command = selftest_command(
        ranks, rounds=rounds, seed=seed, processes=processes, kill=kill, gpu=gpu
    )
    variables = os.environ | ({} if dpu is None else {"DGKIT_NCCL_DPU": dpu})
    done = subprocess.run(
        bound(command), capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode:
        raise AssertionError(done.stderr.strip() or f"the program ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _installed_file(name: str) -> Path:
    path = beside_core("_nccl") / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not installed: `pip install .` builds it, on Linux")
    return path
