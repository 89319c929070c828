"""The first two messages: who may come in, and what the agent says of itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .._version import __version__
from ..dma import cpus
from ..errors import PeerRefused, PeerVersion
from ..wire.host_id import boot_id, host_name
from ..wire.messages import VERSION, Hello, Welcome

if TYPE_CHECKING:
    from .server import Agent

__all__ = ["check_hello", "welcome"]


def check_hello(hello: Hello, full: bool) -> None:
    """PeerVersion: the client speaks another version. PeerRefused: there are too many clients."""
    if hello.version != VERSION:
        raise PeerVersion(
            f"the agent speaks wire version {VERSION} (dgkit {__version__}), the client speaks "
            f"{hello.version} (dgkit {hello.package}): install the same dgkit on both sides"
        )
    if full:
        raise PeerRefused("the agent serves as many clients as it can; close one first")


def welcome(agent: Agent, first_id: int, request_id: int) -> Welcome:
    """The agent's side of the greeting."""
    caps = agent.device.caps
    return Welcome(
        request_id,
        version=VERSION,
        first_id=first_id,
        role=agent.role,
        provider=agent.device.provider,
        why=dict(agent.device.why),
        pid=os.getpid(),
        boot=boot_id(),
        machine=host_name(),
        cpus=cpus(),
        max_memory=agent.limit.limit,
        max_size=caps.max_size,
        inline_max=caps.inline_max,
        spinning=caps.spin_ns > 0,
        engine=caps.engine,
        package=__version__,
    )
