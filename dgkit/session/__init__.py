"""A host and a DPU put together; one of them is this process.

connect.py          connect(): reach an agent, or start a software DPU
spawn.py            the software DPU as a second process
handshake.py        keys and Hello
session.py          Session, the public interface
sides.py            the two sides, as connect() found them
lifecycle.py        the end of a session, at a fork and at exit, too
describe.py         Session.info, repr, card
argument_checks.py  checks of the arguments
region.py           SessionRegion
region_factory.py   how regions are created
region_registry.py  the open regions, and callbacks for their changes
backend.py          Backend: the protocol of the two DPUs
remote_dpu.py       the DPU is an agent
local_dpu.py        this process is the DPU
transfer.py         SessionTransfer and TransferReport
remote_transfer.py  transfer with an agent, a request for each chunk
two_agents.py       where both sides are agents
staging.py          memory that carries data between this process and the DPU
measure.py          latency and bandwidth reports
scratch.py          memory that measurements write to instead of a region
monitor.py          continuous latency monitoring
sample_source.py    where a monitor's samples come from
gpu_queue.py        queue that kernels of this process post to
aio.py              awaiting a transfer
"""

from .connect import connect, inspect

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
__all__ += ["TransferReport", "connect", "inspect"]


def __getattr__(name: str) -> object:
    """Import late: connect() starts the other process first and imports while that one starts."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
