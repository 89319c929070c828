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
        max_memory=state.limit.limit,
        max_size=caps.max_size,
        inline_max=caps.inline_max,
        spinning=caps.spin_ns > 0,
        engine=caps.engine,
        package=__version__,
        emulated=machine_is_emulated(),
    )


@dataclass(slots=True)
class Greeting:
    """First message of a connection; `account` is that of its key, if other keys are allowed."""

    frame: zmq.Frame
    several: bool
    account: Account | None

    def is_due(self) -> bool:
        """Return whether it may be served now."""
        return self.account is None or self.account.may_arrive


class Hellos(dict[bytes, Greeting]):
    """Greetings that wait for their turn by route, in order of arrival. Not thread-safe."""

    def __init__(self, most: int) -> None:
        """Keep at most `most` greetings, one for each possible connection."""
        super().__init__()
        self._most = most
        self._due = 0.0  # when to look again for one that is due

    def add(self, route: bytes, greeting: Greeting) -> None:
        """Queue a greeting; drop its key's oldest if there are more than connections."""
        if len(self) >= self._most:  # many of them have ended
            own = (each for each, hello in self.items() if hello.account is greeting.account)
            del self[next(own, next(iter(self)))]
        self[route] = greeting
        self._due = 0.0

    def take_due(self) -> tuple[bytes, Greeting] | None:
        """Remove and return the oldest greeting that is due, and its route; None if none is.

        Hundreds of one key may wait, so that not each call looks at all of them.
        """
        now = time.monotonic()
        if now < self._due:
            return None
        route = next((route for route, each in self.items() if each.is_due()), None)
        if route is None:
            self._due = now + RETRY_MS / 1000
            return None
        return route, self.pop(route)
