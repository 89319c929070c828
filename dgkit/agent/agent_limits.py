"""Limits of an agent: clients, regions of each, and file descriptors with a reserve."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass

from ..errors import LimitReached

__all__ = ["CLIENTS", "REGIONS", "Limits", "raise_descriptor_limit"]

CLIENTS = 256
REGIONS = 100_000
_REGION_FDS = 2  # that a region takes at most: its memory, and what its descriptor needs
_MAX_CONNECTIONS = 64  # more than clients, for those that have not sent Hello


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@dataclass(frozen=True)
class Limits:
    """Limits of an agent, as it was started.

    Attributes:
        clients: Clients at a time.
        regions: Regions of one client.
        descriptors: RLIMIT_NOFILE when the agent started.
    """

    clients: int = CLIENTS
    regions: int = REGIONS
    descriptors: int = 1024

    @property
    def reserve(self) -> int:
        """Return the file descriptors that no new region, monitor or telemetry may take."""
        return min(1024, self.descriptors // 4)

    @property
    def connections(self) -> int:
        """Return the connections at a time, to each of the two sockets."""
        return max(8, min(self.clients + _MAX_CONNECTIONS, self.descriptors // 4))

    @property
    def regions_each(self) -> int:
        """Return the regions of one client: half of the descriptors are for the others."""
        return max(8, min(self.regions, (self.descriptors - self.reserve) // (2 * _REGION_FDS)))

    def check_descriptors(self) -> None:
        """Check that something new may take file descriptors.

        The system always gives the lowest free number, so that one shows how many are in use.

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
