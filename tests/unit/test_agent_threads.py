"""Threads of an agent's workers are kept for the next client, without what the last one had."""

import threading
import weakref

from support.processes.waiting import until

from dgkit.agent import worker
from dgkit.agent.worker import SerialWorker, Threads


def refuse(exc):
    raise exc


def work(threads, name):
    """Run a job and end its worker; return the thread's identifier and name during the job."""
    seen = []
    one = SerialWorker(name, refuse, threads)
    one.submit(lambda: seen.append((threading.get_ident(), threading.current_thread().name)))
    until(lambda: seen, "the job runs")
    one.finish()
    assert one.join(5.0)
    return seen[0]


def of_workers():
    return [each for each in threading.enumerate() if each.name.startswith("dgkit-test")]


def test_the_next_worker_gets_the_thread_of_one_that_has_ended_under_its_own_name():
    threads = Threads()
    ident, name = work(threads, "dgkit-test-1")
    assert name == "dgkit-test-1"
    until(lambda: threads._idle, "the thread is idle")
    assert work(threads, "dgkit-test-2") == (ident, "dgkit-test-2")
    threads.close()
    until(lambda: not of_workers(), "the thread ends")


def test_an_idle_thread_keeps_nothing_of_the_client_it_worked_for():
    threads, client = Threads(), threading.Event()
    one = SerialWorker("dgkit-test-1", lambda _, client=client: client, threads)
    one.start()
    one.finish()
    gone = weakref.ref(client)
    del client, one
    until(lambda: gone() is None, "the client is freed")
    assert len(of_workers()) == 1
    threads.close()


def test_only_some_idle_threads_are_kept_and_none_after_close(monkeypatch):
    monkeypatch.setattr(worker, "_KEPT", 2)
    threads = Threads()
    workers = [SerialWorker(f"dgkit-test-{n}", refuse, threads) for n in range(5)]
    for each in workers:
        each.start()
    until(lambda: len(of_workers()) == 5, "each has a thread")
    for each in workers[:2]:
        each.finish()
    until(lambda: len(threads._idle) == 2, "two are kept")
    for each in workers[2:4]:
        each.finish()
    until(lambda: len(of_workers()) == 3, "two are kept beside the one at work")
    threads.close()
    until(lambda: len(of_workers()) == 1, "idle ones end")
    workers[4].finish()
    until(lambda: not of_workers(), "the last ends with its work")
