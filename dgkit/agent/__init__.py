"""The process that serves one side to the other: `dgkit serve`.

serve.py       serve(), until a signal
server.py      the loop
state.py       state shared by the loop, handlers, monitors and handshake
handlers.py    one handler for each request
client.py      per-client resources, and the limits on them
agent_limits.py  limits of clients, regions and file descriptors
worker.py      thread for a client's long work
handshake.py   Hello and Welcome
monitor.py     continuous latency monitoring for a client
telemetry.py   publisher of latency samples
systemd.py     systemd user unit
__main__.py    the software DPU that connect() starts
"""

from .agent_limits import CLIENTS, REGIONS
from .serve import leave, serve
from .server import Agent, default_memory
from .systemd import unit

__all__ = ["CLIENTS", "REGIONS", "Agent", "default_memory", "leave", "serve", "unit"]
