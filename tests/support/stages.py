"""Stages of tests/run: each runs as a process, as many side by side as there are cores."""

from __future__ import annotations

import contextlib
import os
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
TAIL = 12  # lines of a passing stage's log that are printed


@dataclass
class Stage:
    """One part of the tests.

    Attributes:
        run: What it does; its docstring is the stage's help. It raises where something fails.
        needs: Programs that it needs, by their names in programs.PROGRAMS.
        after: Stages that have to end first, if they run at all.
        alone: Nothing may run beside it: it measures time, or uses every core.
        slow: Left out unless it is named, or CI=true.
        by_hand: Left out unless it is named, also in CI.
    """

    run: Callable[[], None]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    alone: bool = False
    slow: bool = False
    by_hand: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.run.__name__.lstrip("_")

    @property
    def help(self) -> str:
        """The first line of the function's docstring."""
        return (self.run.__doc__ or "").splitlines()[0]


@dataclass
class Result:
    """How a stage ended, and how long it took in seconds."""

    name: str
    verdict: str
    seconds: float = 0.0

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


class Scheduler:
    """Runs stages side by side, as many as there are cores, in their order.

    A stage that fails is run once more, alone, with what failed: the tests have deadlines, and a
    shared or slow core is no defect. Its verdict says that it passed at the second try only.

    Args:
        command: The command that runs one stage, given its name and whether it is a second try.
        logs: The folder for one log a stage.
        cores: How many stages may run at a time.
    """

    def __init__(
        self, command: Callable[[str, bool], list[str]], logs: Path, cores: int | None = None
    ) -> None:
        self._command, self._logs = command, logs
        self._cores = cores or len(os.sched_getaffinity(0))
        self._running: list[_Running] = []
        self._again: list[Stage] = []
        self._tried: set[str] = set()  # stages that failed once
        self.results: list[Result] = []

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
        return len(self._running) < self._cores

    def _launch(self, stage: Stage, *, again: bool) -> None:
        log = self._logs / f"{stage.name}.log"
        if not again:
            log.unlink(missing_ok=True)
        print(f"== {stage.name}: {stage.help}{' (once more, alone)' if again else ''}", flush=True)
        alone = stage.alone or again
        self._running.append(_Running(stage, self._command(stage.name, again), log, alone=alone))

    def _collect(self) -> None:
        """Wait until a stage has ended, and say how."""
        while True:
            ended = [running for running in self._running if running.process.poll() is not None]
            if ended:
                break
            time.sleep(0.1)
        for running in ended:
            self._running.remove(running)
            running.clean_up()
            self._judge(running)

    def _judge(self, running: _Running) -> None:
        stage, failed = running.stage, running.process.returncode != 0
        again = stage.name in self._tried
        lines = running.log.read_text(encoding="utf-8", errors="replace").splitlines()
        shown = lines if failed else lines[-TAIL:]
        verdict = "FAILED" if failed else SECOND_TRY if again else "ok"
        print("\n".join(shown))
        print(f"== {stage.name}: {verdict} ({running.seconds:.0f} s)\n", flush=True)
        if failed and not again:
            self._tried.add(stage.name)
            self._again.append(stage)
            return
        self.results.append(Result(stage.name, verdict, running.seconds))


def table(results: Iterable[Result], total: float) -> str:
    """Return one line a stage, and the whole time."""
    lines = [f"{each.name:<10} {each.seconds:6.0f} s  {each.verdict}" for each in results]
    return "\n".join([*lines, f"{'all':<10} {total:6.0f} s"])
