# SPDX-License-Identifier: Apache-2.0
"""The process that serves one side to the other: `dgkit serve`.

agent_process.py        serve(), until a signal
serve_options.py        ServeOptions: side, device, address and limits
server.py               the loop
state.py                state shared by the loop, handlers, monitors and handshake
handlers.py             one handler for each request
client.py               per-client resources, and its requests that wait
account.py              resources of one key or user, and their limits
agent_limits.py         limits of clients, regions and file descriptors
gpu_rings.py            GPU queues of a client
worker.py               thread for a client's long work, end of a monitor's
handshake.py            Hellos that wait for their turn, and Welcome
latency_monitor.py      continuous latency monitoring for a client
telemetry_publisher.py  publisher of latency samples
systemd.py              systemd user unit
__main__.py             the software DPU that connect() starts
"""

from ..wire.essential import leave
from .agent_process import serve
from .serve_options import ServeOptions, default_memory
from .server import Agent
from .systemd import unit

__all__ = ["Agent", "ServeOptions", "default_memory", "leave", "serve", "unit"]
