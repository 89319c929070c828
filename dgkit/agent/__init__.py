"""The process that serves one side to the other: `dgkit serve`.

serving.py    serve(), until a signal
server.py     the loop
handlers.py   what each request does
holdings.py   what is held for each client, and the limits
lane.py       a client's thread for long work
mover.py      bytes from region to region
jobs.py       digests, latencies, rates; floors.py: what they are compared with
greeting.py   the first two messages
monitor.py    samples every so often; sampling.py: how they are taken
telemetry.py  the socket that they go out by
unit.py       a systemd user unit
__main__.py   the software DPU that connect() starts
"""

from .serve import leave, serve
from .server import Agent, default_memory
from .systemd import unit

__all__ = ["Agent", "default_memory", "leave", "serve", "unit"]
