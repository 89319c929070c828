# SPDX-License-Identifier: Apache-2.0
"""The frame thread: steps in turn, ticks, cancel, errors, and that it ends."""

import contextvars
import os
import threading
import time

import pytest
from support.processes.waiting import until

from dgkit.errors import LimitReached
from dgkit.widgets.base import scheduler


@pytest.fixture
def failed():
    return []


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "dgkit-frames"]


def test_all_tasks_share_one_thread_and_it_ends_after_the_last(failed):
    seen, go = [], threading.Event()

    def steps():
        while not go.is_set():
            seen.append(threading.current_thread())
            yield

    tasks = [scheduler.start(steps(), failed.append) for _ in range(3)]
    until(lambda: len(seen) >= 6, "each had a step")
    assert set(seen) == set(threads())
    go.set()
    until(lambda: not threads(), "the thread has ended")
    assert all(task.done for task in tasks)
    assert not failed


def test_a_task_that_yields_true_does_not_wait_for_the_tick(failed):
    took = []

    def steps():
        for number in range(200):
            took.append(number)
            yield True

    task = scheduler.start(steps(), failed.append)
    until(lambda: task.done, "200 steps, which are 10 s of ticks", timeout=5)
    assert took == list(range(200))


def test_an_eager_task_does_not_starve_one_that_ticks(failed):
    go, ticks = threading.Event(), []

    def eager():
        while not go.is_set():
            yield True

    def ticking():
        for number in range(3):
            ticks.append(number)
            yield

    scheduler.start(eager(), failed.append)
    task = scheduler.start(ticking(), failed.append)
    until(lambda: task.done, "the other task")
    go.set()
    assert ticks == [0, 1, 2]


def test_cancel_runs_the_finally_before_it_returns(failed):
    began, ended = threading.Event(), []

    def steps():
        try:
            while True:
                began.set()
                yield
        finally:
            ended.append(True)

    task = scheduler.start(steps(), failed.append)
    assert began.wait(5)
    task.cancel()
    assert ended == [True]
    assert task.done
    task.cancel()
    assert not failed


def test_a_task_may_cancel_itself(failed):
    ended, mine = [], []

    def steps():
        try:
            yield
            mine[0].cancel()
            yield
            ended.append("went on")
        finally:
            ended.append("closed")

    mine.append(scheduler.start(steps(), failed.append))
    until(lambda: mine[0].done, "it is done")
    until(lambda: ended, "its finally")
    assert ended == ["closed"]
    assert not failed


def test_an_error_ends_its_task_alone_and_is_reported(failed):
    go = threading.Event()

    def bad():
        yield
        raise ValueError("no such thing")

    def good():
        while not go.is_set():
            yield

    other = scheduler.start(good(), failed.append)
    task = scheduler.start(bad(), failed.append)
    until(lambda: task.done, "it failed")
    until(lambda: failed, "it is reported")
    assert [str(error) for error in failed] == ["no such thing"]
    assert not other.done
    go.set()


def test_tasks_run_in_the_context_of_who_started_the_thread(failed):
    number = contextvars.ContextVar("number", default=0)
    number.set(7)
    seen = []

    def steps():
        seen.append(number.get())
        yield

    scheduler.start(steps(), failed.append)
    until(lambda: seen, "a step")
    assert seen == [7]


def test_a_pause_gives_way_for_so_long(failed):
    order = []

    def slow():
        yield from scheduler.sleep(0.2)
        order.append("slow")

    def quick():
        yield
        order.append("quick")

    task = scheduler.start(slow(), failed.append)
    scheduler.start(quick(), failed.append)
    until(lambda: task.done, "both")
    assert order == ["quick", "slow"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of threads
def test_while_all_tasks_pause_the_thread_sleeps(failed, monkeypatch):
    looks, live = [], scheduler._scheduler._live_tasks

    def look():
        looks.append(time.monotonic())
        return live()

    monkeypatch.setattr(scheduler._scheduler, "_live_tasks", look)
    task = scheduler.start(scheduler.sleep(1.0), failed.append)
    until(lambda: task.done, "it has ended")
    assert looks[-1] - looks[0] >= 0.9
    assert len(looks) < 10, "not at each tick"
    assert not failed


def test_a_task_that_is_hastened_does_not_wait_for_the_time_that_it_has_named(failed):
    due = time.monotonic() + 1000

    def steps():
        yield due

    task = scheduler.start(steps(), failed.append)
    until(lambda: task.due == due, "it waits")
    task.hasten(due + 1)
    assert task.due == due
    task.hasten(time.monotonic())
    until(lambda: task.done, "it has ended")
    assert not failed


def test_the_thread_ends_with_a_task_that_is_cancelled_in_its_pause(failed):
    task = scheduler.start(scheduler.sleep(60.0), failed.append)
    until(lambda: task.due, "it pauses")
    task.cancel()
    until(lambda: scheduler._scheduler._thread is None, "the thread has ended", timeout=10)


def test_a_forked_child_has_no_tasks_and_can_start_its_own(failed):
    go = threading.Event()

    def steps():
        while not go.is_set():
            yield

    scheduler.start(steps(), failed.append)
    child = os.fork()
    if not child:
        seen = []

        def own():
            seen.append(1)
            yield

        task = scheduler.start(own(), failed.append)
        until(lambda: task.done, "a task of the child's own")
        os._exit(0 if seen == [1] else 1)
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_task_that_is_cancelled_before_its_first_step_reports_its_end(failed, occupied):
    ran, ended = [], []

    def steps():
        ran.append(True)
        yield

    task = scheduler.start(steps(), failed.append, lambda: ended.append(task.done))
    task.cancel()
    assert ended == [True]
    occupied.set()
    until(lambda: not threads(), "the thread has ended")
    task.cancel()
    assert (ran, ended, failed) == ([], [True], [])


@pytest.mark.parametrize("how", ["ends", "fails", "cancels itself", "is cancelled", "exits"])
def test_a_task_reports_its_end_once_and_then_its_failure(how):
    heard, began = [], threading.Event()

    def steps():
        try:
            yield
            if how == "fails":
                raise ValueError("no such thing")
            if how == "exits":
                raise SystemExit(3)
            if how == "cancels itself":
                task.cancel()
            while how != "ends":
                began.set()
                yield
        finally:
            heard.append("finally")

    def failed(error):
        heard.append(type(error).__name__)

    task = scheduler.start(steps(), failed, lambda: heard.append("ended"))
    if how == "is cancelled":
        assert began.wait(20)
        task.cancel()
    until(lambda: not threads(), "the thread has ended")
    errors = {"fails": ["ValueError"], "exits": ["RuntimeError"]}
    assert heard == ["finally", "ended", *errors.get(how, [])]


def test_what_hears_of_an_error_and_raises_ends_no_other_task(failed, caplog):
    go = threading.Event()

    def good():
        while not go.is_set():
            yield

    def bad():
        raise ValueError("no such thing")
        yield

    def worse(error):
        raise LookupError("no callback works")

    other = scheduler.start(good(), failed.append)
    (thread,) = threads()
    scheduler.start(bad(), worse, lambda: 1 / 0)
    until(lambda: "no callback works" in caplog.text, "it is logged")
    assert "ZeroDivisionError" in caplog.text
    assert threads() == [thread]
    assert not other.done
    go.set()


def test_a_defect_of_the_thread_ends_its_tasks_with_the_reason_and_the_next_task_runs(
    failed, monkeypatch
):
    def steps():
        while True:
            yield

    with monkeypatch.context() as patched:
        patched.setattr(scheduler.Task, "step", lambda _: 1 / 0)
        tasks = [scheduler.start(steps(), failed.append) for _ in range(2)]
        until(lambda: len(failed) == 2, "both tasks have failed")
    assert all(task.done for task in tasks)
    assert {type(error) for error in failed} == {ZeroDivisionError}
    until(lambda: not threads(), "the thread has ended")
    done = []
    task = scheduler.start((done.append(number) or True for number in range(3)), failed.append)
    until(lambda: task.done, "the next task has run")
    assert done == [0, 1, 2]


def test_without_a_free_thread_a_task_fails_with_the_reason_and_the_next_one_runs(
    failed, monkeypatch
):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        task = scheduler.start((None for _ in range(3)), failed.append)
    assert task.done
    assert isinstance(failed[0], LimitReached)
    task = scheduler.start((True for _ in range(3)), failed.append)
    until(lambda: task.done, "the next task has run")
    assert len(failed) == 1
