# SPDX-License-Identifier: Apache-2.0
"""Limits of an agent: of all clients together, of one client, and of one key or user.

The limits of what both sides must know are in wire/messages.py: 8 monitors and 8 GPU queues of one
client.
"""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass

from ..errors import LimitReached

CLIENTS = 256
REGIONS = 100_000
REQUESTS, REQUESTS_NS = 10_000, 100_000_000  # most requests of one client in this time
UNSENT = 512 << 10  # most bytes of replies that a client has not read
WAITING = 2 << 20  # most bytes of a client's requests that wait to be served
# File descriptors charged to a key or user: for a monitor its queue and its memory; for a region
# its memory or the connection to its exporter. Clients are counted and use the reserve instead.
MONITOR_FDS, REGION_FDS = 4, 2
_MAX_CONNECTIONS = 64  # connections beyond the clients, for those that have not sent Hello
_MAX_SHARES = 16  # each key may have a 16th, however many keys are allowed
_CLIENT_MEMORY = 0.75  # fraction of the agent's memory that one client may have by default
_MOST_DROPPED = 1024  # routes


class DroppedRoutes(dict[bytes, None]):
    """The 1,024 routes that were added last, oldest first. Not thread-safe."""

    def add(self, route: bytes) -> None:
        """Drop all further messages from a route."""
        self[route] = None
        if len(self) > _MOST_DROPPED:
            del self[next(iter(self))]


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@dataclass(frozen=True)
class Quota:
    """Limits on the resources that the clients of one key or user share; memory in bytes."""

    clients: int
    regions: int
    descriptors: int
    memory: int
    subscriptions: int


@dataclass(frozen=True)
class Limits:
    """Limits of an agent, set when it starts.

    Attributes:
        memory: Bytes of host memory that all clients allocate.
        clients: Clients at a time.
        regions: Regions of one client.
        descriptors: RLIMIT_NOFILE when the agent started.
        client_memory: Bytes that one client allocates; 0: three quarters of `memory`.
        share: Percent of the clients, regions, descriptors, memory and subscriptions that one key
            or user may have. 0: the user of a Unix socket may have all; a key may have as much as
            each other allowed key, but at least a 16th.
    """

    memory: int
    clients: int = CLIENTS
    regions: int = REGIONS
    descriptors: int = 1024
    client_memory: int = 0
    share: int = 0

    @property
    def reserve(self) -> int:
        """Return the file descriptors that no new region, monitor or telemetry may take."""
        return min(1024, self.descriptors // 4)

    @property
    def connections(self) -> int:
        """Return the maximum number of connections at a time to each of the two sockets."""
        return max(8, min(self.clients + _MAX_CONNECTIONS, self.descriptors // 4))

    @property
    def regions_each(self) -> int:
        """Return the maximum regions of one client; half of the descriptors are left to others."""
        return max(8, min(self.regions, (self.descriptors - self.reserve) // (2 * REGION_FDS)))

    @property
    def memory_each(self) -> int:
        """Return the maximum bytes of host memory of one client."""
        return min(self.client_memory or int(self.memory * _CLIENT_MEMORY), self.memory)

    def quota(self, keys: int) -> Quota:
        """Return the limits of one key or user.

        Args:
            keys: Number of allowed keys; 0 for the user of a Unix socket, which is the agent's own
                user.
        """
        share = self.share / 100 or 1 / min(max(1, keys), _MAX_SHARES)
        usable = self.descriptors - self.reserve
        return Quota(
            clients=max(1, int(share * self.clients)),
            regions=max(8, int(share * min(self.clients * self.regions_each, usable))),
            descriptors=max(32, int(share * usable)),
            memory=int(share * self.memory),
            subscriptions=max(16, int(share * self.connections)),
        )

    @property
    def has_descriptors(self) -> bool:
        """Return whether a new resource may take file descriptors."""
        try:
            self.check_descriptors()
        except LimitReached:
            return False
        return True

    def check_descriptors(self) -> None:
        """Check that a new resource may take file descriptors.

        The system always assigns the lowest free number, so a new descriptor shows how many are in
        use.

        Raises:
            LimitReached: Only the reserve is left.
        """
        try:
            lowest = os.dup(0)
        except OSError as exc:
            lowest = self.descriptors if exc.errno in (errno.EMFILE, errno.ENFILE) else -1
        else:
            os.close(lowest)
        if lowest >= self.descriptors - self.reserve:
            raise LimitReached(
                errno.EMFILE,
                f"the agent uses {self.descriptors - self.reserve} of its {self.descriptors} file "
                f"descriptors and keeps {self.reserve} for other clients: close some regions, or "
                "raise its hard limit (`ulimit -Hn`)",
            )
