"""A host and a DPU put together; one of them is this process.

opening.py    connect(): reach an agent, or start a software DPU
spawn.py      the software DPU as a second process, and what ties its life to this one's
session.py    Session: what a person calls
region.py     memory that a session knows
filing.py     all that is open, and who is told of changes
making.py     how it gets to know it
checks.py     what a caller gives, before it goes anywhere
closing.py    what its end frees, in which order
forks.py      what a forked child lets go of
transfer.py   a write or read that was started, and the report of its DMA
staging.py    memory that carries data between this process and the DPU
there.py      the DPU is an agent: one message a transfer
here.py       this process is the DPU: it moves the bytes itself; turns.py: thread after thread
beside.py     its copies and digests, which no transfer waits for
measuring.py  latency and bandwidth reports
monitor.py    latencies for as long as somebody looks; monitor_source.py: where they come from
"""

from .connect import connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .monitor import Monitor as Monitor
    from .monitor import Sampled as Sampled
    from .region import SessionRegion as SessionRegion
    from .session import Session as Session
    from .transfer import SessionTransfer as SessionTransfer
    from .transfer import TransferReport as TransferReport

_HOME = {
    "Monitor": "monitor",
    "Sampled": "monitor",
    "Session": "session",
    "SessionRegion": "region",
    "SessionTransfer": "transfer",
    "TransferReport": "transfer",
}

__all__ = ["Monitor", "Sampled", "Session", "SessionRegion", "SessionTransfer"]
__all__ += ["TransferReport", "connect"]


def __getattr__(name: str) -> object:
    """Imports late: connect() starts the other process first, and imports while that one does."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
