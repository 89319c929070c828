# SPDX-License-Identifier: Apache-2.0
"""Workers that are processes, as those of `dgkit fleet demo`: signals, values that are sent."""

import signal
import sys

import cloudpickle
import pytest

from dgkit.fleet import Fleet, demo_cluster

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import this file


@pytest.fixture(scope="module")
def client():
    with demo_cluster.local(2) as client:
        yield client


def blocks_interrupts():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_ctrl_c_in_a_terminal_reaches_the_command_and_not_its_workers(client):
    assert list(client.run(blocks_interrupts).values()) == [True, True]
    assert not blocks_interrupts()


class Unsendable:
    """Value that cannot leave its process."""

    def __reduce__(self):
        raise TypeError("not this value")


def test_a_value_that_cannot_be_sent_is_the_error_of_one_pair(client):
    with Fleet(client) as fleet:
        pids = fleet.map(lambda session: session.info["dpu"]["pid"])
        first, second = pids
        found = fleet.map(
            lambda session, pid: Unsendable() if session.info["dpu"]["pid"] == pid else "fine",
            pids[first],
        )
        assert "Unsendable" in str(found[first])
        assert found[second] == "fine"
