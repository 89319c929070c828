# SPDX-License-Identifier: Apache-2.0
"""Stages of tests/run: each runs as a process, as many side by side as the cores have time for."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

END_S = 20.0  # how long an interrupted stage may take to clean up before it is killed
SECOND_TRY = "ok, but only at the second try"
TAIL = 3  # lines of a passing stage's log that are printed
# How many times the cores the sum of shares may be. Shares are averages that seldom add up to a
# whole number of cores: with 1.0, an eighth of the time was idle, and up to 1.2 gained on it.
CROWD = 1.2
IDLE = 0.2  # of the cores' time: another stage is started
SETTLE_S = 10.0  # before the time is measured that a started stage leaves idle

# 1.23s call     tests/unit/test_x.py::test_y
_PYTEST_TIME = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)
# 3/85 Test  #3: test_x ......   Passed    1.82 sec
_CTEST_TIME = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) .*? ([\d.]+) sec$", re.MULTILINE)
# FAILED tests/unit/test_x.py::test_y - AssertionError: ...
_PYTEST_FAILURE = re.compile(
    r"^(?:FAILED|ERROR) (tests/\S+?(?:\[.*\])?)(?: - (.*))?$", re.MULTILINE
)
# 	 21 - test_x (Failed)
_CTEST_FAILURE = re.compile(r"^\s+\d+ - (\S+) \((.*?)\)", re.MULTILINE)


@dataclass
class Stage:
    """One part of the tests.

    Attributes:
        run: What it does; its docstring is the stage's help. It raises where something fails.
        needs: Programs that it needs, by their names in programs.PROGRAMS.
        after: Stages that have to end first, if they run at all.
        share: How many cores it keeps busy on average: in the table of a run, CPU over wall.
        alone: Nothing may run beside it: it measures time, or uses every core.
        slow: Left out unless it is named, or CI=true.
        by_hand: Left out unless it is named, also in CI.
    """

    run: Callable[[], None]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    share: float = 1.0
    alone: bool = False
    slow: bool = False
    by_hand: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.run.__name__

    @property
    def help(self) -> str:
        """The first line of the function's docstring."""
        return (self.run.__doc__ or "").splitlines()[0]

    @property
    def when(self) -> str:
        """When it runs, if not always."""
        return " (by name)" if self.by_hand else " (CI, or by name)" if self.slow else ""


@dataclass(frozen=True)
class Failure:
    """A test that failed, and why."""

    stage: str
    test: str
    reason: str


@dataclass
class Result:
    """How a stage ended, and what it took.

    Attributes:
        seconds: Wall time.
        cpu_s: User and system time of its processes, without those that outlived it.
    """

    stage: Stage
    verdict: str
    seconds: float
    cpu_s: float

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.verdict.startswith("ok")


class _Running:
    """A stage that runs as a process group, its output in a file.

    It has a runtime folder of its own, so that its tests may count the files there. The path is
    short: that of a Unix socket has at most 108 bytes (unix(7)).
    """

    def __init__(self, stage: Stage, command: list[str], log: Path, *, alone: bool) -> None:
        self.stage, self.log, self.alone = stage, log, alone
        self.start = time.monotonic()
        self.cpu_s = 0.0
        self._runtime = tempfile.mkdtemp(prefix="dg-", dir="/tmp")
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "XDG_RUNTIME_DIR": self._runtime},
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def ended(self) -> bool:
        """Whether the process has ended; then `cpu_s` and the exit status are known."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
        return bool(pid)

    def end(self) -> None:
        """Interrupt the group as Ctrl-C does, and kill what does not end."""
        for number, patience in ((signal.SIGINT, END_S), (signal.SIGKILL, END_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
                break
        self.clean_up()

    def clean_up(self) -> None:
        """Remove the runtime folder; the process has ended."""
        shutil.rmtree(self._runtime, ignore_errors=True)


class _IdleTime:
    """Idle time of the cores since the last stage was started, in windows of SETTLE_S."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self.restart()

    def restart(self) -> None:
        self._start, self._idle_s = time.monotonic(), idle_s()

    def allows_another(self) -> bool:
        """Whether the cores were idle for more than IDLE of a window that has just ended."""
        passed = time.monotonic() - self._start
        if passed < SETTLE_S:
            return False
        idle = idle_s() - self._idle_s
        self.restart()
        return idle > IDLE * passed * self._cores


def idle_s() -> float:
    """Return for how long the cores that this process may use have been idle since the boot."""
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = sum(int(line[4]) + int(line[5]) for line in lines if line[0] in mine)  # proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


class Scheduler:
    """Run stages side by side in their order, as long as their shares fit on the cores (CROWD).

    One more starts when the cores have been idle for a while: stages wait at times, for the network
    or for what their tests have started.

    A stage that fails is run once more, alone, with what failed: the tests have deadlines, which a
    busy core can exceed. Its verdict then says that it passed at the second try only, and
    `second_tries` names the tests that failed before.

    Args:
        command: The command that runs one stage, given its name and whether it is a second try.
        logs: The folder for one log a stage.
        cores: How many cores the stages share.
    """

    def __init__(
        self, command: Callable[[str, bool], list[str]], logs: Path, cores: int | None = None
    ) -> None:
        self._command, self._logs = command, logs
        self._cores = cores or len(os.sched_getaffinity(0))
        self._idle = _IdleTime(self._cores)
        self._running: list[_Running] = []
        self._again: list[Stage] = []
        self._failed: dict[str, list[Failure]] = {}  # by stage, of its first try
        self.results: list[Result] = []
        self.second_tries: list[Failure] = []

    def run(self, stages: Iterable[Stage]) -> list[Result]:
        """Run all stages and return their results in the order in which they ended."""
        waiting = list(stages)
        try:
            while waiting or self._running or self._again:
                self._start(waiting)
                self._collect()
        except BaseException:
            for running in self._running:
                running.end()
            raise
        return self.results

    def _start(self, waiting: list[Stage]) -> None:
        for stage in list(waiting):
            if not self._may_start(stage, waiting):
                continue
            waiting.remove(stage)
            self._launch(stage, again=False)
        if self._again and not self._running:  # a waiting stage may wait for this one
            self._launch(self._again.pop(0), again=True)

    def _may_start(self, stage: Stage, waiting: list[Stage]) -> bool:
        busy = {running.stage.name for running in self._running} | {each.name for each in waiting}
        busy |= {each.name for each in self._again}
        if busy & set(stage.after):
            return False
        if any(running.alone for running in self._running):
            return False
        if stage.alone:  # in its turn: once nothing runs, and nothing before it waits for a core
            return not self._running
        taken = sum(running.stage.share for running in self._running)
        fits = not self._running or taken + stage.share <= CROWD * self._cores
        return fits or self._idle.allows_another()

    def _launch(self, stage: Stage, *, again: bool) -> None:
        log = self._logs / f"{stage.name}.log"
        if not again:
            log.unlink(missing_ok=True)
        print(f"== {stage.name}: {stage.help}{' (once more, alone)' if again else ''}", flush=True)
        alone = stage.alone or again
        # without a known failure, as of a test process that crashed, all of the stage
        repeats = again and bool(self._failed[stage.name])
        self._running.append(_Running(stage, self._command(stage.name, repeats), log, alone=alone))
        self._idle.restart()

    def _collect(self) -> None:
        """Wait a moment, and say how the stages ended that have."""
        time.sleep(0.1)
        for running in [running for running in self._running if running.ended()]:
            self._running.remove(running)
            running.clean_up()
            self._judge(running)

    def _judge(self, running: _Running) -> None:
        stage, failed = running.stage, running.process.returncode != 0
        again = stage.name in self._failed
        text = running.log.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        verdict = "FAILED" if failed else SECOND_TRY if again else "ok"
        print("\n".join(lines if failed else lines[-TAIL:]))
        if slow := slowest(text):
            print(f"slowest of {stage.name}:", *slow, sep="\n  ")
        times = f"{running.seconds:.0f} s, {running.cpu_s:.0f} s of CPU"
        print(f"== {stage.name}: {verdict} ({times})\n", flush=True)
        if failed and not again:
            self._failed[stage.name] = failures(stage.name, text)
            self._again.append(stage)
            return
        if not failed and again:
            self.second_tries += self._failed[stage.name]
        self.results.append(Result(stage, verdict, running.seconds, running.cpu_s))


def slowest(log: str) -> list[str]:
    """Return the ten slowest tests in a log of pytest (--durations) or of ctest, slowest first."""
    found = [(float(seconds), name) for seconds, name in _PYTEST_TIME.findall(log)]
    found += [(float(seconds), name) for name, seconds in _CTEST_TIME.findall(log)]
    return [f"{seconds:6.1f} s  {name}" for seconds, name in sorted(found, reverse=True)[:10]]


def failures(stage: str, log: str) -> list[Failure]:
    """Return the tests that failed according to a log of pytest or of ctest.

    A stage whose log names no test counts as one, with the log's last line as the reason.
    """
    found = [Failure(stage, name, reason) for name, reason in _PYTEST_FAILURE.findall(log)]
    found += [Failure(stage, name, reason) for name, reason in _CTEST_FAILURE.findall(log)]
    last = (log.strip().splitlines() or [""])[-1]
    return found or [Failure(stage, stage, last)]


def table(results: Iterable[Result], total: float, idle: float) -> str:
    """Return how each stage ended, with its times, and the times of the whole run.

    Args:
        results: The stages' results.
        total: Seconds of the whole run.
        idle: Seconds for which the cores were idle, added up.
    """
    done = [*results]
    cpu_s = sum(each.cpu_s for each in done)
    head = f"{'stage':<10} {'wall':>6}   {'CPU':>6}"
    lines = [
        f"{each.name:<10} {each.seconds:6.0f} s {each.cpu_s:6.0f} s  {each.verdict}"
        for each in done
    ]
    last = f"{'all':<10} {total:6.0f} s {cpu_s:6.0f} s  the cores were idle for {idle:.0f} s"
    return "\n".join([head, *lines, last])


def markdown(results: Iterable[Result]) -> str:
    """Return the results as rows of the table of stages in .github/CONTRIBUTING.md."""
    lines = (f"| `{each.name}` | {each.seconds:.0f} | {each.cpu_s:.0f} |\n" for each in results)
    return "".join(lines)
