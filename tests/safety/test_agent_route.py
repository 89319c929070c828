# SPDX-License-Identifier: Apache-2.0
"""A client cannot take the place of the agent's own wake-ups, whatever routing id it sets."""

import zmq
from support.processes.agents import agent

import dgkit
from dgkit.wire.address import parse


def test_a_client_with_the_routing_id_of_the_wake_ups_gets_no_power():
    with (
        agent() as one,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as raw,
    ):
        raw.linger = 0
        raw.routing_id = b"dgkit-wakeup"
        raw.connect(parse(one.address).endpoint)
        raw.send(b"p")  # "the parent has ended"
        assert raw.poll(5000), "an error about a message that is not Hello"
        with dgkit.connect(one.address) as session:
            session.write(session.empty(64), b"x")


def test_each_agent_has_another_routing_id_for_its_wake_ups():
    from dgkit.wire.listener import Listener
    from dgkit.wire.wakeup import Wakeup

    routes = set()
    for _ in range(3):
        listener = Listener(None, None)
        with Wakeup(listener, (), -1) as wakeup:
            routes.add(wakeup.route)
        listener.close()
    assert len(routes) == 3
    assert all(len(route) > 16 for route in routes)
