# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed or stopped, a scheduler that restarts: nothing written is lost."""

import os
import signal
import sys
import time
from contextlib import contextmanager

import cloudpickle
import pytest
from distributed import Client
from support.processes.agents import program
from support.processes.waiting import stop, until

from dgkit.errors import PeerLost
from dgkit.fleet import Fleet, diff
from dgkit.fleet.pair_plugin import PairPlugin
from dgkit.fleet.row_table import KEY

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import this file

PLAN = {"sizes": [64, 4096], "ops": ["write", "read"], "count": 50, "seconds": 0.01}

# A cluster as a process group: scheduler and nannies in one process, each worker in another.
CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, host="127.0.0.1",
        processes=sys.argv[2] == "processes", dashboard_address="127.0.0.1:0", protocol="tcp",
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.readline()
"""


@contextmanager
def cluster(workers: int, kind: str):
    """Give the process of a cluster and its address; end it."""
    with program(CLUSTER, str(workers), kind) as process:
        address = process.stdout.readline().strip()
        assert address, "the cluster did not start"
        try:
            yield process, address
        finally:
            if process.poll() is None:
                process.stdin.write("end\n")
                process.stdin.flush()
                process.wait(60)


class Slow(PairPlugin):
    """Workers whose measurements last long enough to be disturbed."""

    delay_s = 0.2

    def session(self):
        time.sleep(self.delay_s)
        return super().session()


class Slower(Slow):
    """Workers whose sweep has not ended when its scheduler is killed after the first rows."""

    delay_s = 0.8


def test_a_worker_that_is_killed_and_one_that_is_stopped_cost_no_row(tmp_path):
    with (
        cluster(2, "processes") as (_, address),
        Client(address) as client,
        Fleet(client, _plugin=Slow()) as fleet,
    ):
        first, second = (pair.name for pair in fleet.pairs)
        pids = fleet.map(lambda _: os.getpid())  # a lambda: no worker can import this file
        undisturbed = fleet.sweep(**PLAN, folder=tmp_path / "undisturbed")
        running = fleet.start_sweep(**PLAN, folder=tmp_path / "disturbed")
        os.kill(pids[first], signal.SIGKILL)
        stop(pids[second])
        time.sleep(1)
        os.kill(pids[second], signal.SIGCONT)
        assert running.wait(100)
        assert running.failures == ()
        assert running.rows == undisturbed.rows == 8
        assert not running.table.duplicated(list(KEY)).any()
        compared = diff(tmp_path / "undisturbed", tmp_path / "disturbed")
        assert (len(compared), set(compared["only"])) == (8, {""})
        assert fleet.map(lambda _: os.getpid())[first] != pids[first]


def test_a_scheduler_that_is_killed_is_a_typed_error_and_the_folder_is_resumed(tmp_path):
    with cluster(2, "threads") as (process, address), Client(address, timeout=5) as client:
        fleet = Fleet(client, _plugin=Slower())
        running = fleet.start_sweep(**PLAN, folder=tmp_path)
        until(lambda: running.rows or running.done, "the first rows")
        process.kill()
        process.wait(20)
        with pytest.raises(PeerLost, match=r"`--resume`\) continues from there"):
            running.wait(60)
        there = running.rows
        assert 0 < there < 8
        with pytest.raises(PeerLost):
            fleet.map(lambda _: os.getpid())
        fleet.close()
    with (
        cluster(2, "threads") as (_, address),
        Client(address) as client,
        Fleet(client) as fleet,
    ):
        done = fleet.sweep(**PLAN, folder=tmp_path, resume=True)
        assert (done.rows, done.failures) == (8, ())
        assert not done.table.duplicated(list(KEY)).any()
