"""The agent's side of the handshake: Hello and Welcome."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from .._version import __version__
from ..dma import cpus
from ..errors import LimitReached, PeerVersion
from ..types import machine_is_emulated
from ..wire.host_id import boot_id, host_name
from ..wire.messages import VERSION, Hello, Welcome

if TYPE_CHECKING:
    from .state import AgentState


def check_hello(hello: Hello, clients: int, limit: int) -> None:
    """Check that a client may connect to an agent that already serves `clients` of `limit`.

    Raises:
        PeerVersion: The client speaks another version of the protocol.
        LimitReached: The agent serves as many clients as it can.
    """
    if hello.version != VERSION:
        raise PeerVersion(
            f"the agent speaks wire version {VERSION} (dgkit {__version__}), the client speaks "
            f"{hello.version} (dgkit {hello.package}): install the same dgkit on both sides"
        )
    if clients >= limit:
        raise LimitReached(
            errno.EUSERS,
            f"the agent serves {limit} clients, its maximum (`dgkit serve --max-clients` sets it): "
            "close one first",
        )


def welcome(state: AgentState, first_id: int, request_id: int) -> Welcome:
    """Return the reply to Hello; the client's next request must have number `first_id`."""
    caps = state.device.caps
    return Welcome(
        id=request_id,
        version=VERSION,
        first_id=first_id,
        role=state.role,
        provider=state.device.provider,
        why=dict(state.device.why),
        pid=os.getpid(),
        boot=boot_id(),
        machine=host_name(),
        cpus=cpus(),
        max_memory=state.limit.limit,
        max_size=caps.max_size,
        inline_max=caps.inline_max,
        spinning=caps.spin_ns > 0,
        engine=caps.engine,
        package=__version__,
        emulated=machine_is_emulated(),
    )
