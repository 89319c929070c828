# SPDX-License-Identifier: Apache-2.0
"""Replay traces against softdoca, each in a process of its own, and collect what differs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import child
from ..errors import DgkitError
from .causal_order import requirements
from .functions import load, recorder_folder
from .trace_file import Trace, read_trace

_START_S = 600  # for a replay to read its trace
_SILENCE_S = 20  # of a replay: longer than any wait in it
_PARTS = 1000  # in which the progress of a step is counted


@dataclass(frozen=True, slots=True)
class Difference:
    """Call that does something else with softdoca than it did when it was recorded.

    `kind` is result, value, state, order, missing callback, additional callback or no return.
    """

    trace: str
    kind: str
    call: int
    function: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class Replayed:
    """A trace that was replayed. `skipped` counts calls that were not, by function and reason."""

    path: str
    doca: str
    is_softdoca: bool
    calls: int
    is_complete: bool
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of compare()."""

    traces: list[Replayed]

    @property
    def differences(self) -> list[Difference]:
        """All differences, in the order of the traces and their calls."""
        return [difference for trace in self.traces for difference in trace.differences]


def compare(
    paths: Sequence[Path], progress: Callable[[int, int], object] = lambda *_: None
) -> Comparison:
    """Replay traces against softdoca at the same time.

    Args:
        paths: One trace, or those of the two sides of one run.
        progress: Called with what is done, and the total.

    Raises:
        TraceError: A file is not a trace, or a replay found none of DOCA's calls.
        FileNotFoundError: This installation has no recorder.
    """
    functions, overall = load(), _Progress(progress, len(paths))
    traces = [
        read_trace(path, functions, overall.of(index, "reading"))
        for index, path in enumerate(paths)
    ]
    with tempfile.TemporaryDirectory(prefix="dgkit-trace-") as folder:
        (Path(folder) / "devices").write_text(_devices(traces))
        (Path(folder) / "counts").write_bytes(bytes(8 * len(traces)))
        (Path(folder) / "runtime").mkdir(mode=0o700)
        shared = {
            "counts": str(Path(folder) / "counts"),
            "verbs": [index for index, trace in enumerate(traces) if trace.has_verbs],
            "kernels": any(trace.has_kernels for trace in traces),
        }
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(traces)))  # ends after the processes
            runs = []
            for index, (trace, waits) in enumerate(zip(traces, requirements(traces), strict=True)):
                plan = shared | {"index": index, "waits": [*map(asdict, waits)]}
                run = _Run(trace, Path(folder), plan, overall.of(index, "replaying"))
                stack.callback(run.close)
                runs.append(run)
            return Comparison(list(pool.map(_Run.run, runs)))


class _Progress:
    """The progress of all traces: reading and replaying each count _PARTS."""

    def __init__(self, progress: Callable[[int, int], object], traces: int) -> None:
        self._progress, self._total = progress, 2 * _PARTS * traces
        self._parts: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()

    def of(self, trace: int, step: str) -> Callable[[int, int], None]:
        """Return the progress callback of one step, "reading" or "replaying", of a trace."""

        def advance(done: int, total: int) -> None:
            with self._lock:
                self._parts[trace, step] = _PARTS * done // total
                self._progress(sum(self._parts.values()), self._total)

        return advance


class _Run:
    """The process that replays one trace."""

    def __init__(
        self,
        trace: Trace,
        folder: Path,
        plan: dict[str, Any],
        progress: Callable[[int, int], object],
    ) -> None:
        self._trace, self._folder, self._progress = trace, folder, progress
        header = trace.header
        calls = sum(1 for _ in trace.every_call())
        self._result = Replayed(
            str(trace.path), str(header.get("doca"))[:32], header.get("softdoca") is True, calls,
            trace.is_complete,
        )  # fmt: skip
        self._plan = json.dumps({"path": str(trace.path), **plan}).encode() + b"\n"
        self._socket, theirs = socket.socketpair()
        self._process = child.start("dgkit.doca_trace.replay", theirs, env=self._environment())

    def run(self) -> Replayed:
        """Collect what the process writes until it ends."""
        last: dict[str, Any] = {}
        with contextlib.suppress(ConnectionError):  # it has ended
            self._socket.sendall(self._plan)
        for entry in self._entries():
            if "difference" in entry:
                self._result.differences.append(
                    Difference(
                        self._result.path, entry["difference"], entry["call"], entry["f"],
                        entry["recorded"], entry["replayed"],
                    )
                )  # fmt: skip
            elif "skipped" in entry:
                self._result.skipped[entry["f"], entry["reason"]] += 1
            elif "progress" in entry:
                self._progress(*entry["progress"])
                continue
            elif "failed" in entry:
                raise DgkitError(f"{self._result.path}: the replay failed: {entry['failed']}")
            last = entry
        if "done" not in last:
            self._note_end(last)
        self._result.differences.sort(key=lambda difference: difference.call)
        return self._result

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the process; kill it if it is silent for too long."""
        rest, patience = b"", _START_S
        while select.select([self._socket], [], [], patience)[0]:
            try:
                part = self._socket.recv(1 << 16)
            except ConnectionError:  # it ended before it had read its plan
                part = b""
            if not part:
                self._process.wait()
                return
            *lines, rest = (rest + part).split(b"\n")
            for entry in map(json.loads, lines):
                if "at" in entry:  # it has been read
                    patience = _SILENCE_S
                yield entry
        self._process.kill()
        self._process.wait()

    def _note_end(self, last: dict[str, Any]) -> None:
        """Report that the replay ended before the trace."""
        code = self._process.returncode
        why = (
            f"no return within {_SILENCE_S} s"
            if code == -9
            else f"the process ended by signal {-code}"
        )
        self._result.differences.append(
            Difference(
                self._result.path,
                "no return",
                last.get("at", 0),
                last.get("f", ""),
                "returned",
                why,
            )
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTDOCA_", "DGKIT_"))}
        return kept | {
            "SOFTDOCA_SIDE": self._trace.side,
            "SOFTDOCA_DEVICES": str(self._folder / "devices"),
            "SOFTDOCA_FAULTS": self._trace.faults,
            "SOFTDOCA_LIB": str(recorder_folder().parent),
            "CUDA_VISIBLE_DEVICES": "",  # GPUs are emulated
            "XDG_RUNTIME_DIR": str(self._folder / "runtime"),
        }


def _devices(traces: Sequence[Trace]) -> str:
    """Return a file of softdoca's functions.

    They are those with which softdoca was recorded, or, for each side, as many as the programs
    found.
    """
    counts: Counter[str] = Counter()
    for trace in traces:
        for call in trace.every_call():
            if call.name == "doca_devinfo_create_list":
                side = trace.side
            elif call.name == "doca_devinfo_rep_create_list":
                side = "host"
            else:
                continue
            counts[side] = max(counts[side], len(call.entries))
    if counts["both"]:  # it has its own representor
        del counts["host"]
    found = [f"side={side}" for side, count in counts.items() for _ in range(count)]
    recorded = next((trace.functions for trace in traces if any(trace.functions)), found)
    return "".join(
        f"{function} pci=0000:{3 + number // 256:02x}:{number // 8 % 32:02x}.{number % 8} type=pf\n"
        for number, function in enumerate(recorded)
    )
