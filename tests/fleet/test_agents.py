# SPDX-License-Identifier: Apache-2.0
"""Pairs with agents, which are processes, over loopback: own and all pairs, an agent that goes."""

import contextlib
import threading
import time

import pytest
from support.processes.agents import agent

from dgkit.fleet import Fleet
from dgkit.fleet.pair_plugin import PairPlugin
from dgkit.fleet.row_table import KEY
from dgkit.wire import keys as wire_keys

PLAN = {"sizes": [64], "ops": ["write", "read"], "count": 50, "seconds": 0.01}


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """A folder of its own for the key pairs of both sides."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    wire_keys.allow(wire_keys.make().public, "the workers of this test")


def names_of(fleet):
    return [pair.name for pair in fleet.pairs]


@pytest.mark.usefixtures("keys")
def test_workers_with_agents_are_measured_with_their_own_and_with_all_others(client, tmp_path):
    with agent(address="tcp://127.0.0.1:0") as one, agent(address="tcp://127.0.0.1:0") as two:
        agents = {"0": one.address, "1": two.address}
        with Fleet(client, agents=agents) as fleet:
            first, second, software = names_of(fleet)
            pids = fleet.map(lambda session: (session.info["dpu"]["pid"], session.info["owned"]))
            assert (pids[first], pids[second]) == ((one.pid, False), (two.pid, False))
            assert pids[software][1]
            done = fleet.sweep(**PLAN, pairs="all", folder=tmp_path / "sweep")
            assert done.failures == ()
            crossed = [f"{first} with {second}", f"{second} with {first}"]
            crossed += [f"{software} with {first}", f"{software} with {second}"]
            rows = done.table
            assert sorted(set(rows["pair"])) == sorted([first, second, software, *crossed])
            assert not rows.duplicated(list(KEY)).any()
            assert list(done.cells().index) == [first, second, software, *crossed]
            again = fleet.sweep(**PLAN, pairs="all", folder=tmp_path / "sweep", resume=True)
            assert again.rows == done.rows == 14


class Slow(PairPlugin):
    """Workers whose measurements last long enough for an agent to go."""

    def session(self):
        time.sleep(0.3)
        return super().session()


def test_a_dpu_that_reboots_during_a_sweep_costs_no_row(client, tmp_path):
    where = f"ipc://{tmp_path}/agent.sock"
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(contextlib.ExitStack())
        old = before.enter_context(agent(address=where))
        with Fleet(client, _plugin=Slow({"0": where})) as fleet:
            first = names_of(fleet)[0]
            assert fleet.pairs[0].dpu.endswith(f"pid {old.pid}")
            running = fleet.start_sweep(**PLAN, folder=tmp_path / "sweep")
            before.close()  # the agent has ended
            threading.Event().wait(1)  # it is away for longer than the first attempts take
            new = stack.enter_context(agent(address=where))
            assert running.wait(60)
            assert running.failures == ()
            assert (running.rows, len(fleet.map(lambda session: 0, pairs=[first]))) == (6, 1)
            assert not running.table.duplicated(list(KEY)).any()
            assert fleet.pairs[0].dpu.endswith(f"pid {new.pid}")


def test_a_dpu_that_does_not_return_is_given_up_and_the_others_are_measured(client, tmp_path):
    where = f"ipc://{tmp_path}/agent.sock"
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(contextlib.ExitStack())
        served.enter_context(agent(address=where))
        with Fleet(client, _plugin=Slow({"0": where})) as fleet:
            first = names_of(fleet)[0]
            served.close()
            done = fleet.sweep(**PLAN, rejoin=0.5)
            assert {failure.pair for failure in done.failures} == {first}
            assert all(failure.why.startswith("Peer") for failure in done.failures)
            assert done.rows == 4
