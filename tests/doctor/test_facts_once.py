# SPDX-License-Identifier: Apache-2.0
"""A machine works each fact out once, for all checks at once, and closes its reader."""

import threading

import pytest

from dgkit.doctor.collect.reader import Reader
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import live_machine


class Closing(Reader):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_fact_is_worked_out_once_for_all_who_ask() -> None:
    made, gate = [], threading.Barrier(8)
    known: list[int] = []

    def fact(machine: Machine) -> int:
        made.append(machine)
        return len(made)

    def ask() -> None:
        gate.wait()
        known.append(machine.know(fact))

    machine = Machine(Reader())
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert known == [1] * 8
    assert made == [machine]


def test_what_a_fact_raises_each_who_asks_is_told() -> None:
    made = []

    def fact(machine: Machine) -> int:
        made.append(machine)
        raise ValueError("odd")

    machine = Machine(Reader())
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            machine.know(fact)
    assert made == [machine]


def test_a_fact_that_asks_for_itself_is_told_so_and_hangs_nobody() -> None:
    def one(machine: Machine) -> int:
        return machine.know(other)

    def other(machine: Machine) -> int:
        return machine.know(one)

    machine = Machine(Reader())
    for fact in (one, other):
        with pytest.raises(RuntimeError, match="the fact one depends on itself"):
            machine.know(fact)


def test_what_a_fact_raises_does_not_grow_with_each_who_asks() -> None:
    def fact(machine: Machine) -> int:
        raise ValueError("odd")

    def depth() -> int:
        with pytest.raises(ValueError, match="odd") as caught:
            machine.know(fact)
        return len(caught.traceback)

    machine = Machine(Reader())
    depth()
    assert depth() == depth()


def test_a_machine_closes_its_reader() -> None:
    reader = Closing()
    with Machine(reader) as machine:
        assert (machine.read, reader.closed) == (reader, 0)
    assert reader.closed == 1


def test_this_machine_gives_no_answers_once_it_is_closed() -> None:
    with live_machine(fast=True) as machine:
        assert machine.read.run("true").ok
    assert machine.read.run("false").fault == "late"
