"""NCCL's RMA plugin: where it is, what makes NCCL load it, and a test of it without NCCL.

NCCL 2.30.3 and later hand the puts, gets and signals that kernels post (GIN) to such a plugin, if
no network adapter takes them from the GPU itself. dgkit's is a C library, over the C core.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import beside_core
from .html_cards import table
from .units import size_text, us

__all__ = [
    "Peer",
    "Rank",
    "Ranks",
    "Transfers",
    "environment",
    "plugin_path",
    "selftest",
    "statistics",
]


def plugin_path() -> Path:
    """Return the path of libnccl-rma-dgkit.so.

    Raises:
        FileNotFoundError: It is not installed.
    """
    return _installed("libnccl-rma-dgkit.so")


def environment(
    statistics_folder: str | os.PathLike[str] | None = None, *, dpu: str | None = None
) -> dict[str, str]:
    """Return the environment variables with which NCCL loads the plugin.

    NCCL_MULTI_RANK_GPU_ENABLE allows several ranks on one GPU.

    Args:
        statistics_folder: Folder to which each rank writes what it transfers, for statistics().
        dpu: Address of an agent of this machine (`dgkit serve`), whose process then moves the
            bytes; it needs the provider cuda for memory on a GPU. NCCL's process moves them if
            None.
    """
    variables = {
        "NCCL_RMA_PLUGIN": str(plugin_path()),
        "NCCL_GIN_TYPE": "2",  # NCCL's proxy takes the operations from the kernel
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }
    if statistics_folder is not None:
        variables["DGKIT_NCCL_STATISTICS"] = str(Path(statistics_folder).absolute())
    if dpu is not None:
        variables["DGKIT_NCCL_DPU"] = dpu
    return variables


@dataclass(frozen=True, slots=True)
class Transfers:
    """Requests of one kind to one peer.

    A latency is the time from NCCL's call to the plugin until the plugin has found the request
    finished: for a signal, until it has been added. It depends on how often NCCL's proxy calls.

    Attributes:
        count: Number of requests that succeeded.
        bytes: Their bytes.
        mean_ns: Mean latency; 0 if there were none, as the other two.
        p50_ns: Median of the latency, to 6 %.
        p99_ns: 99th percentile of the latency, to 6 %.
    """

    count: int
    bytes: int
    mean_ns: int = 0
    p50_ns: int = 0
    p99_ns: int = 0

    def __str__(self) -> str:
        if not self.count:
            return "-"
        return f"{self.count} ({size_text(self.bytes)}), p50 {us(self.p50_ns)}"


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
class Rank:
    """One rank's communicator.

    Attributes:
        rank: Its number.
        ranks: Number of ranks.
        pid: Its process.
        closed: Whether it is closed; otherwise it runs, or its process was killed.
        peers: By rank; a rank may put to itself.
    """

    rank: int
    ranks: int
    pid: int
    closed: bool
    peers: tuple[Peer, ...]


class Ranks(tuple[Rank, ...]):
    """The communicators of a folder, by rank. Shown as a matrix in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        most = max((rank.ranks for rank in self), default=0)
        return str(
            table(
                "NCCL's puts and signals by dgkit: from rank (row) to rank (column)",
                ["from", *map(str, range(most))],
                [[f"rank {rank.rank}", *map(_cell, rank.peers)] for rank in self],
            )
        )


def _cell(peer: Peer) -> str:
    parts = [f"{name} {kind}" for name, kind in _kinds(peer) if kind.count]
    if peer.failed:
        parts.append(f"{peer.failed} failed")
    return "; ".join(parts) or "-"


def _kinds(peer: Peer) -> tuple[tuple[str, Transfers], ...]:
    return ("puts", peer.puts), ("signals", peer.signals), ("gets", peer.gets)


def statistics(folder: str | os.PathLike[str]) -> Ranks:
    """Return what the ranks have transferred that write to a folder: see environment().

    A rank replaces its figures five times a second, and once more when it is closed. They stay in
    the folder.
    """
    found = (json.loads(path.read_bytes()) for path in Path(folder).glob("rank-*.json"))
    return Ranks(sorted(map(_rank, found), key=lambda rank: (rank.rank, rank.pid)))


def _rank(value: dict[str, Any]) -> Rank:
    peers = tuple(
        Peer(
            Transfers(**peer["puts"]),
            Transfers(**peer["signals"]),
            Transfers(**peer["gets"]),
            peer["failed"],
        )
        for peer in value["peers"]
    )
    return Rank(value["rank"], value["ranks"], value["pid"], value["closed"], peers)


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
    command = [_installed("nccl-selftest"), "--plugin", plugin_path(), "--ranks", ranks]
    command += ["--rounds", rounds, "--seed", seed]
    flags = {"--processes": processes, "--kill": kill, "--gpu": gpu}
    command += [flag for flag, given in flags.items() if given]
    variables = os.environ | ({} if dpu is None else {"DGKIT_NCCL_DPU": dpu})
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode:
        raise AssertionError(done.stderr.strip() or f"the program ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _installed(name: str) -> Path:
    path = beside_core("_nccl") / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not installed: `pip install .` builds it, on Linux")
    return path
