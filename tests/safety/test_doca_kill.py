# SPDX-License-Identifier: Apache-2.0
"""Over softdoca: either side of a session killed is an error and no hang.

Killed importers and exporters are in native/test_doca_others.c.
"""

import contextlib
import signal

import pytest
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.errors import DgkitError, PeerLost


def test_a_dpu_of_softdoca_that_is_killed_ends_what_was_asked_of_it():
    with agent(provider="softdoca") as serving, dgkit.connect(serving.address) as session:
        region = session.empty(1 << 20)
        session.write(region, b"before")
        serving.send(signal.SIGKILL)
        with pytest.raises(PeerLost):
            session.write(region, b"after")


def test_a_host_that_is_killed_ends_what_this_dpu_moves():
    with (
        agent(role="host", provider="softdoca") as host,
        dgkit.connect(host.address, provider="softdoca") as session,
    ):
        region = session.empty(256 << 20)
        transfer = session.start_write(region, bytes(256 << 20))
        host.send(signal.SIGKILL)
        with contextlib.suppress(DgkitError):  # it may just have been through
            transfer.wait()
        until(lambda: region.remote.lost, "the region says so", timeout=5)
        with pytest.raises(DgkitError):
            session.write(region, b"after")
