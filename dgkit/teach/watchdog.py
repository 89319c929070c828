# SPDX-License-Identifier: Apache-2.0
"""The grader in another process, which a watchdog ends if a submission stops it.

A submission that is not isolated runs as the grader's user, and could stop it by a signal or
ptrace(2), or leave a process that outlives it. The watchdog sees that from outside: it ends the
grader and what the submission started, the test scores 0, and the next test gets a new grader.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..child import end_with_starter
from ..errors import Unsupported
from ..json_input import read_json
from ..unique import Closable
from . import concepts, grader, sandbox, verdict
from .student_notebook import Test

_DUMPABLE, _SUBREAPER = 4, 36  # of prctl(2)
_LOOK_S = 0.5  # between two looks at the grader
_STOPPED = frozenset("Tt")  # stopped by a signal, by a tracer: proc_pid_stat(5)
_END_S = 10.0
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv.pop().split(':')\n"
    "from dgkit.teach.watchdog import main; main()"
)


class Watchdog(Closable):
    """A grader in another process; a new one after it had to be ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def grade(
        self,
        cells: Any,
        test: Test,
        *,
        seed: str,
        isolation: sandbox.Isolation,
        limits: sandbox.Limits,
    ) -> grader.Grade:
        """Run grader.grade() in the other process.

        Raises:
            Unsupported: This machine lacks what the test needs.
        """
        process = self._process = self._process or _start_child()
        assert process.stdin
        assert process.stdout
        given = {"cells": list(cells), "test": asdict(test), "seed": seed}
        given |= {"isolation": asdict(isolation), "limits": asdict(limits)}
        deadline = time.monotonic() + limits.test_s
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(given).encode() + b"\n")
            process.stdin.flush()
        why = _watch(process, deadline, limits.test_s)
        if not why and (line := process.stdout.readline()):
            return _grade(read_json(line), test)
        self.close()
        why = why or "the grader's process ended"
        return grader.Grade(test, 0.0, failure=f"the test was ended: {why}")

    def close(self) -> None:
        """End the grader, and all processes that it started. Idempotent."""
        if process := self._process:
            self._process = None
            with process:
                end_below(process.pid)
                process.kill()


def _start_child() -> subprocess.Popen[bytes]:
    path = sandbox.search_path()
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _grade(answer: Any, test: Test) -> grader.Grade:
    """Return the grade that the grader's process has sent."""
    if "unsupported" in answer:
        raise Unsupported(answer["unsupported"])
    cases = [
        verdict.Case(**case | {"concept": concepts.Concept(**case["concept"])})
        for case in answer.pop("cases")
    ]
    return grader.Grade(test, cases=cases, **answer)


def _watch(process: subprocess.Popen[bytes], deadline: float, time_s: float) -> str:
    """Wait until a grader answers or ends; return why it must be ended, or ""."""
    assert process.stdout
    stopped = False
    while not select.select([process.stdout], [], [], _LOOK_S)[0]:
        if time.monotonic() > deadline:
            return f"it did not end within {time_s:g} s"
        was, stopped = stopped, any(state in _STOPPED for state in _states(process.pid))
        if was and stopped:
            return "the submission stopped the grader"
    return ""


def _states(pid: int) -> Iterator[str]:
    """Return the state of each thread of a process."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        yield sandbox.process_stat(path)[0]


def end_below(pid: int) -> None:
    """Kill all descendants of a process, until there are none."""
    deadline = time.monotonic() + _END_S
    while (found := _below(pid)) and time.monotonic() < deadline:
        for each in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        if pid == os.getpid():
            _reap()
        time.sleep(0.001)


def _below(pid: int) -> list[int]:
    """Return the running descendants of a process."""
    stats = {
        int(each.name): sandbox.process_stat(each / "stat") for each in Path("/proc").glob("[0-9]*")
    }
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {each for each, (_, parent, *_) in stats.items() if int(parent) in new} - found
    return [each for each in found - {pid} if stats[each][0] not in "XZ"]


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Grade what stdin asks for; all processes of a submission end with its test."""
    end_with_starter()
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # a process that a submission leaves becomes a child
    if os.geteuid():
        libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # no process of the same user can read or trace it
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        answer = _parse_answer(read_json(line))
        end_below(os.getpid())
        output.write(json.dumps(answer).encode() + b"\n")
        output.flush()


def _parse_answer(given: Any) -> dict[str, Any]:
    isolation, limits = given["isolation"], sandbox.Limits(**given["limits"])
    words = {name: tuple(isolation[name]) for name in ("prefix", "missing")}
    used = sandbox.Isolation(**isolation | words)
    cells, test = [(name, source) for name, source in given["cells"]], Test(**given["test"])
    try:
        grading = grader.grade(cells, test, seed=given["seed"], isolation=used, limits=limits)
    except Unsupported as exc:
        return {"unsupported": str(exc)}
    names = ("share", "failure", "ratio")
    cases = [asdict(case) for case in grading.cases]
    return {name: getattr(grading, name) for name in names} | {"cases": cases}
