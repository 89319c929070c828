# SPDX-License-Identifier: Apache-2.0
"""Message protocol between two processes: typed requests and replies over ZeroMQ, never payload.

messages.py       all messages, their bounds and their codec
error_codec.py    exceptions as messages
keys.py           CURVE keys and the list of allowed clients
address.py        ipc:// and tcp:// addresses, socket files in the runtime folder
host_id.py        identity of this machine, state of a process on it
sockets.py        ZeroMQ socket options and helpers shared by both ends
peer_state.py     state of the peer, as exceptions
essential.py      threads whose end is the end of their process
inflow.py         limit on messages that never end
acceptor.py       limits of the connections of one of the agent's sockets
listener.py       the agent's end: a ROUTER socket that tracks its clients
wakeup.py         thread that wakes the agent's loop for events other than requests
connection.py     the client's end: requests, and replies matched to them by number
client_socket.py  the client's ZeroMQ sockets, telemetry subscriptions and monitor-end callbacks
subscriber.py     one telemetry subscription
"""
