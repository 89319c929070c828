# SPDX-License-Identifier: Apache-2.0
"""Sessions: a host and a DPU, one of which is usually this process.

connect.py            connect(): reach an agent, or start a software DPU; keys and Hello
spawn.py              the software DPU as a second process
session.py            Session, the public interface
resources.py          what connect() opened: connection, device and backend
lifecycle.py          end of a session: close(), fork, exit of the process
describe.py           Session.info, repr and notebook card
argument_checks.py    checks of the arguments
session_region.py     SessionRegion
region_factory.py     how regions are created; the open ones, and callbacks for their changes
backend.py            Backend: the protocol of the two DPUs
remote_dpu.py         backend where the DPU is an agent: requests, a chunk each
local_dpu.py          backend where this process is the DPU
session_transfer.py   SessionTransfer, TransferReport and EndedWrite
two_agents.py         backend where both sides are agents
staging.py            memory that carries data between this process and the DPU
session_reports.py    latency and bandwidth reports; memory to write to instead of a region
kernel_latency.py     latency of transfers that kernels of this process start
monitor.py            continuous latency monitoring
sample_source.py      where a monitor's samples come from
session_gpu_queue.py  queue that kernels of this process post to
"""

from .connect import connect, inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .monitor import Monitor as Monitor
    from .monitor import Sampled as Sampled
    from .session import Session as Session
    from .session_region import SessionRegion as SessionRegion
    from .session_transfer import EndedWrite as EndedWrite
    from .session_transfer import SessionTransfer as SessionTransfer
    from .session_transfer import TransferReport as TransferReport

_HOME = {
    "EndedWrite": "session_transfer",
    "Monitor": "monitor",
    "Sampled": "monitor",
    "Session": "session",
    "SessionRegion": "session_region",
    "SessionTransfer": "session_transfer",
    "TransferReport": "session_transfer",
}

__all__ = ["EndedWrite", "Monitor", "Sampled", "Session", "SessionRegion", "SessionTransfer"]
__all__ += ["TransferReport", "connect", "inspect"]


def __getattr__(name: str) -> object:
    """Import on demand: connect() first starts the other process, then imports while it starts."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
