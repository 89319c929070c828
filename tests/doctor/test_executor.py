# SPDX-License-Identifier: Apache-2.0
"""Executor: results, threads, and jobs that hang."""

import sys
import threading
import time

import pytest
from support.processes.waiting import until

from dgkit.doctor import executor
from dgkit.doctor.executor import Executor

FAR = 60.0


def _later(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("spawn_delay_s", [0.0, 0.01])
def test_each_job_gives_what_it_returns_or_raises(spawn_delay_s: float) -> None:
    jobs = Executor("t-gives", spawn_delay_s=spawn_delay_s)
    good = [jobs.submit(lambda n=n: n * n) for n in range(200)]
    bad = jobs.submit(lambda: 1 // 0)
    assert [job.result(_later()) for job in good] == [n * n for n in range(200)]
    with pytest.raises(ZeroDivisionError):
        bad.result(_later())


def test_a_job_that_leaves_the_program_fails_alone() -> None:
    jobs = Executor("t-leaves", spawn_delay_s=0.01)
    with pytest.raises(RuntimeError, match="SystemExit"):
        jobs.submit(sys.exit).result(_later())
    assert jobs.submit(lambda: 7).result(_later()) == 7


def test_ctrl_c_ends_the_main_thread_where_it_does_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor.Executor, "_add_thread", lambda self: False)

    def pressed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Executor("t-ctrl-c").submit(pressed)


@pytest.mark.parametrize("spawn_delay_s", [0.0, 0.01])
def test_no_thread_is_left_when_nothing_is_to_do(spawn_delay_s: float) -> None:
    jobs = Executor("t-left", spawn_delay_s=spawn_delay_s)
    for job in [jobs.submit(threading.get_ident) for _ in range(50)]:
        job.result(_later())
    until(lambda: "t-left" not in {one.name for one in threading.enumerate()}, "threads end")
    assert jobs.submit(lambda: 7).result(_later()) == 7
    until(lambda: "t-left" not in {one.name for one in threading.enumerate()}, "threads end")


def test_its_threads_hold_up_no_exit() -> None:
    jobs = Executor("t-daemon")
    assert jobs.submit(lambda: threading.current_thread().daemon).result(_later())


def test_a_job_that_hangs_is_waited_for_no_longer_than_asked() -> None:
    end = threading.Event()
    job = Executor("t-hangs").submit(end.wait)
    with pytest.raises(TimeoutError):
        job.result(_later(0.01))
    with pytest.raises(TimeoutError):
        job.result(_later(-1))
    end.set()
    assert job.result(_later())


def test_many_small_jobs_share_one_thread() -> None:
    jobs = Executor("t-small", spawn_delay_s=FAR)
    begin = threading.Event()
    jobs.submit(begin.wait)
    made = [jobs.submit(threading.get_ident) for _ in range(100)]
    begin.set()
    assert len({job.result(_later()) for job in made}) == 1


def test_a_job_that_hangs_does_not_hold_up_those_behind_it() -> None:
    jobs = Executor("t-behind", spawn_delay_s=0.001)
    end = threading.Event()
    stuck = [jobs.submit(end.wait) for _ in range(5)]
    assert jobs.submit(lambda: "past").result(_later()) == "past"
    end.set()
    assert all(job.result(_later()) for job in stuck)


def test_without_a_thread_to_be_had_the_work_is_done_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(executor.threading.Thread, "start", refused)
    assert Executor("t-none").submit(threading.get_ident).result(_later()) == threading.get_ident()
