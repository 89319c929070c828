"""Replay traces against softdoca, each in a process of its own, and collect what differs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DgkitError
from .causal_order import requirements
from .functions import load, recorder_folder
from .trace_file import Trace, read_trace

_START_S = 600  # to read a trace
_SILENCE_S = 20  # of a replay: longer than any wait in it


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


def compare(paths: Sequence[Path]) -> Comparison:
    """Replay traces against softdoca at the same time.

    Args:
        paths: One trace, or those of the two sides of one run.

    Raises:
        TraceError: A file is not a trace, or a replay found none of DOCA's calls.
        FileNotFoundError: This installation has no recorder.
    """
    functions = load()
    traces = [read_trace(path, functions) for path in paths]
    with tempfile.TemporaryDirectory(prefix="dgkit-trace-") as folder:
        (Path(folder) / "devices").write_text(_devices(traces))
        (Path(folder) / "counts").write_bytes(bytes(8 * len(traces)))
        (Path(folder) / "runtime").mkdir(mode=0o700)
        shared = {
            "counts": str(Path(folder) / "counts"),
            "verbs": [index for index, trace in enumerate(traces) if trace.has_verbs],
            "kernels": any(trace.has_kernels for trace in traces),
        }
        runs = [
            _Run(trace, Path(folder), shared | {"index": index, "waits": [*map(astuple, waits)]})
            for index, (trace, waits) in enumerate(zip(traces, requirements(traces), strict=True))
        ]
        with ThreadPoolExecutor(len(runs)) as pool:
            try:
                return Comparison(list(pool.map(_Run.run, runs)))
            finally:
                for run in runs:
                    run.stop()


class _Run:
    """The process that replays one trace."""

    def __init__(self, trace: Trace, folder: Path, plan: dict[str, Any]) -> None:
        self._trace, self._folder = trace, folder
        header = trace.header
        calls = sum(1 for _ in trace.every_call())
        self._result = Replayed(
            str(trace.path), str(header.get("doca"))[:32], header.get("softdoca") is True, calls,
            trace.is_complete,
        )  # fmt: skip
        search = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(trace.path), json.dumps(plan), search],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
        )

    def run(self) -> Replayed:
        """Collect what the process writes until it ends."""
        last: dict[str, Any] = {}
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
            last = entry
        if "done" not in last:
            self._note_end(last)
        self._result.differences.sort(key=lambda difference: difference.call)
        return self._result

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the process; kill it if it is silent for too long."""
        assert self._process.stdout is not None
        fd, rest, patience = self._process.stdout.fileno(), b"", _START_S
        while select.select([fd], [], [], patience)[0]:
            part, patience = os.read(fd, 1 << 16), _SILENCE_S
            if not part:
                self._process.wait()
                return
            *lines, rest = (rest + part).split(b"\n")
            yield from map(json.loads, lines)
        self._process.kill()
        self._process.wait()

    def _note_end(self, last: dict[str, Any]) -> None:
        """Report that the replay ended before the trace."""
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        if code == 1 and words:  # an exception of Python
            raise DgkitError(f"{self._result.path}: the replay failed: {words[-1]}")
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

    def stop(self) -> None:
        """End the process."""
        with self._process:  # closes its pipes
            self._process.kill()

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


_PROGRAM = """
import sys
path, plan, search = sys.argv[1:]
sys.path[:] = search.split(':')
from dgkit.doca_trace.replay import main
sys.exit(main(path, plan))
"""


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
