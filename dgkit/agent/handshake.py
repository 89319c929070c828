# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the handshake: Hellos that wait for their turn, and Welcome."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._version import __version__
from ..dma import cpus
from ..errors import LimitReached, PeerVersion
from ..types import machine_is_emulated
from ..wire.host_id import boot_id, host_name
from ..wire.messages import VERSION, Hello, Welcome

if TYPE_CHECKING:
    import zmq

    from .account import Account
    from .state import AgentState

RETRY_MS = 5  # interval at which the loop looks for a Hello that is due


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
        max_memory=state.memory_limit.limit,
        max_size=caps.max_size,
        inline_max=caps.inline_max,
        spinning=caps.spin_ns > 0,
        engine=caps.engine,
        package=__version__,
        emulated=machine_is_emulated(),
    )


@dataclass(slots=True)
class WaitingHello:
    """First message of a connection, not served yet.

    Attributes:
        account: That of its key, whose rate is limited; None if no other key is allowed.
    """

    frame: zmq.Frame
    multipart: bool
    account: Account | None

    def is_due(self) -> bool:
        """Return whether it may be served now."""
        return self.account is None or self.account.may_connect


class Hellos(dict[bytes, WaitingHello]):
    """Waiting Hellos by route, in order of arrival. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` hellos, one for each possible connection."""
        super().__init__()
        self._limit = limit
        self._next_search = 0.0  # no hello is due before this time

    def add(self, route: bytes, hello: WaitingHello) -> None:
        """Queue a hello. At the limit, drop the oldest one of the same key."""
        if len(self) >= self._limit:  # many of their connections have ended
            same_key = (each for each, old in self.items() if old.account is hello.account)
            del self[next(same_key, next(iter(self)))]
        self[route] = hello
        self._next_search = 0.0

    def take_due(self) -> tuple[bytes, WaitingHello] | None:
        """Remove and return the oldest hello that is due, with its route; None if none is due."""
        now = time.monotonic()
        # Hundreds of one key may wait: do not search them on every call.
        if now < self._next_search:
            return None
        route = next((route for route, each in self.items() if each.is_due()), None)
        if route is None:
            self._next_search = now + RETRY_MS / 1000
            return None
        return route, self.pop(route)
