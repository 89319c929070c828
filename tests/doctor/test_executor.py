"""Jobs side by side."""

import sys
import threading
import time

import pytest
from support.processes.waiting import until

from dgkit.doctor import executor
from dgkit.doctor.executor import Crew

FAR = 60.0


def _later(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
def test_each_job_gives_what_it_returns_or_raises(patience_s: float) -> None:
    jobs = Crew("t-gives", patience_s=patience_s)
    good = [jobs.start(lambda n=n: n * n) for n in range(200)]
    bad = jobs.start(lambda: 1 // 0)
    assert [job.result(_later()) for job in good] == [n * n for n in range(200)]
    with pytest.raises(ZeroDivisionError):
        bad.result(_later())


def test_a_job_that_leaves_the_program_fails_alone() -> None:
    jobs = Crew("t-leaves", patience_s=0.01)
    with pytest.raises(RuntimeError, match="SystemExit"):
        jobs.start(sys.exit).result(_later())
    assert jobs.start(lambda: 7).result(_later()) == 7


def test_ctrl_c_ends_the_main_thread_where_it_does_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor.Crew, "_add", lambda self: False)

    def pressed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Crew("t-ctrl-c").start(pressed)


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
def test_no_thread_is_left_when_nothing_is_to_do(patience_s: float) -> None:
    jobs = Crew("t-left", patience_s=patience_s)
    for job in [jobs.start(threading.get_ident) for _ in range(50)]:
        job.result(_later())
    until(lambda: "t-left" not in {one.name for one in threading.enumerate()}, "threads end")
    assert jobs.start(lambda: 7).result(_later()) == 7
    until(lambda: "t-left" not in {one.name for one in threading.enumerate()}, "threads end")


def test_its_threads_hold_up_no_exit() -> None:
    jobs = Crew("t-daemon")
    assert jobs.start(lambda: threading.current_thread().daemon).result(_later())


def test_a_job_that_hangs_is_waited_for_no_longer_than_asked() -> None:
    end = threading.Event()
    job = Crew("t-hangs").start(end.wait)
    with pytest.raises(TimeoutError):
        job.result(_later(0.01))
    with pytest.raises(TimeoutError):
        job.result(_later(-1))
    end.set()
    assert job.result(_later())


def test_many_small_jobs_share_one_thread() -> None:
    jobs = Crew("t-small", patience_s=FAR)
    begin = threading.Event()
    jobs.start(begin.wait)
    made = [jobs.start(threading.get_ident) for _ in range(100)]
    begin.set()
    assert len({job.result(_later()) for job in made}) == 1


def test_a_job_that_hangs_does_not_hold_up_those_behind_it() -> None:
    jobs = Crew("t-behind", patience_s=0.001)
    end = threading.Event()
    stuck = [jobs.start(end.wait) for _ in range(5)]
    assert jobs.start(lambda: "past").result(_later()) == "past"
    end.set()
    assert all(job.result(_later()) for job in stuck)


def test_without_a_thread_to_be_had_the_work_is_done_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(executor.threading.Thread, "start", refused)
    assert Crew("t-none").start(threading.get_ident).result(_later()) == threading.get_ident()
