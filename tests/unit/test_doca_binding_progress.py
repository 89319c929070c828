# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: waiting, notification, asyncio, signals, and several threads."""

import asyncio
import select
import threading

import pytest
from support.doca.binding import START, copying
from support.processes.children import child, run

from dgkit.doca import Code


@pytest.fixture
def copy():
    with copying(200_000) as made:
        yield made


def halves(copy, count):
    """Tasks that copy the source, one part each."""
    size = len(copy.source) // count
    return [
        copy.dma.memcpy(
            copy.inventory.buf_by_data(copy.source_map, at * size, size),
            copy.inventory.buf_by_addr(copy.target_map, at * size, size),
        )
        for at in range(count)
    ]


# ---- waiting ----


def test_progress_with_nothing_to_do_gives_nothing(copy):
    assert copy.pe.progress() == ()


def test_a_wait_with_nothing_in_flight_returns_at_once(copy):
    assert copy.pe.wait() == ()


def test_a_wait_gives_the_tasks_that_completed(copy):
    tasks = [task.submit() for task in halves(copy, 4)]
    landed = []
    while copy.pe.in_flight:
        landed += copy.pe.wait(10)
    assert landed == tasks
    assert copy.pe.wait(10) == ()


def test_a_task_that_is_waited_for_lets_others_land_too(copy):
    first, second = (task.submit() for task in halves(copy, 2))
    second.wait(10)
    assert first.done
    assert first.wait() is first


LOST = """
from support.doca.binding import copying
with copying(4096) as copy:
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    print(copy.pe.wait(0.01), copy.pe.in_flight)
    try:
        task.wait(0.01)
    except doca.TimeOut as error:
        print(error.code, task.in_flight)
    print(copy.dma.stop(10), task.done, task.status != doca.Code.SUCCESS)
"""


def test_what_never_completes_ends_a_wait_by_its_time_and_itself_with_the_context():
    said = run(START + LOST, SOFTDOCA_FAULTS="lose").splitlines()
    assert said == ["() 1", "TIME_OUT True", "IDLE True True"]


def test_a_wait_sleeps_and_is_woken():
    program = """
from support.doca.binding import copying
import resource
with copying(4096) as copy:
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    print(task.wait(30) is task, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw > before)
"""
    assert run(START + program, SOFTDOCA_FAULTS="delay ms=100") == "True True\n"


def test_ctrl_c_ends_a_wait_and_nothing_else():
    program = """
from support.doca.binding import copying
with copying(4096) as copy:
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    try:
        print("waits", flush=True)
        task.wait()
    except KeyboardInterrupt:
        print("interrupted", task.in_flight, copy.pe.progress(), flush=True)
    copy.dma.stop(10)
    copy.dma.start()
    print(copy.dma.state)
"""
    with child(START + program, SOFTDOCA_FAULTS="lose") as it:
        assert it.line() == "waits"
        it.send(2)
        assert it.line() == "interrupted True ()"
        assert it.line() == "RUNNING"
        assert it.end() == (0, "")


# ---- the notification handle ----


def test_the_handle_is_readable_when_there_is_something_and_only_then(copy):
    fd = copy.pe.fileno()
    copy.pe.request_notification()
    assert not select.select([fd], [], [], 0)[0]
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    assert select.select([copy.pe], [], [], 10)[0]  # an object with fileno() will do
    copy.pe.clear_notification()
    assert not select.select([fd], [], [], 0)[0]
    assert copy.pe.wait(10) == (task,)


def test_epoll_takes_it(copy):
    with select.epoll() as epoll:
        epoll.register(copy.pe, select.EPOLLIN)
        for task in halves(copy, 4):
            task.submit()
            while not task.done:
                copy.pe.request_notification()
                assert epoll.poll(10)
                copy.pe.clear_notification()
                while copy.pe.progress():
                    pass
    assert copy.target == copy.source


async def landed(pe, task):
    """Waits in the event loop, as a program with asyncio would."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def look():
        pe.clear_notification()
        while pe.progress():
            pass
        if task.done:
            done.set_result(task)
        else:
            pe.request_notification()

    loop.add_reader(pe.fileno(), look)
    pe.request_notification()
    try:
        return await asyncio.wait_for(done, 20)
    finally:
        loop.remove_reader(pe.fileno())


def test_an_event_loop_waits_for_it_and_does_other_things_meanwhile(copy):
    turns = []

    async def others():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def main():
        beside = asyncio.ensure_future(others())
        for task in halves(copy, 4):
            assert await landed(copy.pe, task.submit()) is task
        beside.cancel()

    asyncio.run(main())
    assert copy.target == copy.source
    assert turns


# ---- threads ----


def in_threads(*works):
    """Run each in its own thread; return what they raised."""
    raised = []

    def safely(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=safely, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return raised


BUSY = """
import threading
from support.doca.binding import copying
with copying(4096) as copy:
    task, other = (copy.dma.memcpy(copy.src, copy.dst) for _ in range(2))
    task.submit()
    inside = threading.Event()
    leave = threading.Event()
    class Sleep:
        def poll(self, timeout):
            inside.set()
            leave.wait(20)
    copy.pe._poll = Sleep()
    thread = threading.Thread(target=copy.pe.wait, args=(0.01,))
    thread.start()
    inside.wait(20)
    for use in (copy.pe.progress, copy.pe.wait, copy.pe.fileno, copy.pe.request_notification,
                copy.pe.close, copy.device.close, copy.src.close, other.submit, other.close,
                copy.dma.stop, copy.dma.start, copy.dma.close, copy.dma.flush,
                lambda: copy.dma.state, lambda: copy.dma.memcpy(copy.src, copy.dst)):
        try:
            use()
        except doca.InUse as error:
            assert "another thread is using this progress engine" in str(error), error
        else:
            raise AssertionError(use)
    leave.set()
    thread.join()
    copy.pe._poll = None
    print(copy.dma.state, copy.pe.progress())
"""


def test_a_second_thread_in_an_engine_is_turned_away_and_harms_nothing():
    assert run(START + BUSY, SOFTDOCA_FAULTS="lose") == "RUNNING ()\n"


def test_tasks_that_land_out_of_their_order_are_all_found(copy):
    tasks = [task.submit() for task in halves(copy, 4)]
    copy.pe._in_flight.rotate(1)  # as if another had been submitted first
    landed = []
    while len(landed) < 4:
        landed += copy.pe.wait(10)
    assert sorted(map(id, landed)) == sorted(map(id, tasks))
    assert all(task.status == Code.SUCCESS for task in tasks)
    assert copy.target == copy.source
