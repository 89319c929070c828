# SPDX-License-Identifier: Apache-2.0
"""Resources that the clients of one key or user hold together, and their limits."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from ..errors import LimitReached, OutOfMemory, PeerRefused
from .agent_limits import REGION_FDS

if TYPE_CHECKING:
    from .agent_limits import Limits, Quota

_PENALTY_S, _MAX_PENALTY_S = 10.0, 300.0  # how long new clients are refused after a flood
_FREQUENT, _FREQUENT_S = 24, 10.0  # an account with so many new clients in this time is slowed down
# Interval of Hellos of such an account. 128 clients, the most that one of two keys may have by
# default, still connect within the deadline of a Hello.
_PACE_S = 0.04
_FORGIVEN_S = 600.0  # time without a flood after which the penalty is the shortest one again
_EXPLAINED = 4  # refusals by a reply to Hello with the reason; later connections are just refused

_STAGING = 2  # regions of a client that may be staging memory: for small data, and for large
# For each field of Quota: its noun in messages, and the option besides --max-share that sets it.
_NAMES = {
    "clients": ("clients", "`dgkit serve --max-clients`"),
    "regions": ("regions", "`dgkit serve --max-regions`"),
    "descriptors": ("file descriptors", "the hard limit, `ulimit -Hn`,"),
    "memory": ("bytes", "`dgkit serve --max-memory`"),
    "subscriptions": ("subscriptions", "`dgkit serve --max-clients`"),
}


class MemoryLimit:
    """Limit in bytes of the host memory that all clients together allocate. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def charge(self, size: int) -> None:
        """Charge `size` bytes.

        Raises:
            OutOfMemory: Less than `size` is left; nothing was charged.
        """
        with self._lock:
            if self.used + size > self.limit:
                raise OutOfMemory(
                    errno.ENOMEM,
                    f"{size} bytes asked for, {self.limit - self.used} of this agent's limit of "
                    f"{self.limit} are left (`dgkit serve --max-memory` sets it)",
                )
            self.used += size

    def release(self, size: int) -> None:
        """Return `size` bytes that charge() charged."""
        with self._lock:
            self.used -= size


class Account:
    """Resources that the clients of one key or user hold. Thread-safe.

    Args:
        name: Owner, for error texts: "key 0123abcd", "user 1000".
        quota: Limits of the account. They change with the number of allowed keys.
    """

    def __init__(self, name: str, quota: Quota) -> None:
        self.name = name
        self.quota = quota
        self.used: Counter[str] = Counter()
        self._refused_until = float("-inf")
        self._penalty_s = _PENALTY_S
        self._refusals = 0  # since the latest flood
        self._arrivals: deque[float] = deque(maxlen=_FREQUENT)  # times of the latest new clients
        self._lock = threading.Lock()

    def charge(self, **amounts: int) -> None:
        """Charge amounts of the resources named in Quota: all of them, or none.

        Raises:
            LimitReached: An amount exceeds the quota. The message names it and its options.
        """
        with self._lock:
            for kind, amount in amounts.items():
                limit = getattr(self.quota, kind)
                if amount > 0 and self.used[kind] + amount > limit:
                    raise self._reached(kind, limit)
            self.used.update(amounts)

    def record_arrival(self) -> None:
        """Record that the Hello of a new client is served."""
        self._arrivals.append(time.monotonic())

    @property
    def connects_often(self) -> bool:
        """Return whether the latest clients came in quick succession."""
        times = self._arrivals
        return len(times) == _FREQUENT and time.monotonic() - times[0] < _FREQUENT_S

    @property
    def may_connect(self) -> bool:
        """Return whether the Hello of another new client may be served now."""
        return not self.connects_often or time.monotonic() - self._arrivals[-1] >= _PACE_S

    def penalize(self) -> None:
        """Refuse new clients of this account for some seconds, doubling the time at each call."""
        now = time.monotonic()
        if now - self._refused_until > _FORGIVEN_S:
            self._penalty_s = _PENALTY_S
        self._refused_until, self._refusals = now + self._penalty_s, 0
        self._penalty_s = min(2 * self._penalty_s, _MAX_PENALTY_S)

    @property
    def penalized(self) -> bool:
        """Return whether new clients of this account are refused now."""
        return time.monotonic() < self._refused_until

    def stop_explaining(self) -> None:
        """Refuse further connections without a reply, until the penalty ends."""
        self._refusals = _EXPLAINED

    @property
    def refuses_silently(self) -> bool:
        """Return whether connections are refused without a reply: the reason was given before."""
        return self._refusals >= _EXPLAINED

    def check_penalty(self) -> None:
        """Check that new clients of this account are accepted; raise LimitReached if not."""
        left = self._refused_until - time.monotonic()
        if left > 0:
            self._refusals += 1
            raise LimitReached(
                errno.EAGAIN,
                f"{self.name} sent more requests or subscriptions than the agent could serve, or "
                f"did not read its replies: new clients of it are refused for {math.ceil(left)} s",
            )

    def check(self, kind: str) -> None:
        """Check that one more of a kind may be charged; raise LimitReached if not."""
        with self._lock:
            limit = getattr(self.quota, kind)
            if self.used[kind] >= limit:
                raise self._reached(kind, limit)

    def release(self, **amounts: int) -> None:
        """Return what charge() charged."""
        with self._lock:
            self.used.subtract(amounts)

    def counters(self) -> dict[str, int]:
        """Return the amounts in use and the quota, for Session.stats()."""
        with self._lock:
            used = {f"user_{kind}": self.used[kind] for kind in _NAMES}
        return used | {f"max_user_{kind}": getattr(self.quota, kind) for kind in _NAMES}

    def _reached(self, kind: str, limit: int) -> LimitReached:
        noun, option = _NAMES[kind]
        return LimitReached(
            errno.EDQUOT,
            f"{self.name} has {self.used[kind]} {noun} at this agent; all its clients together may "
            f"have {limit}: close some first ({option} and `dgkit serve --max-share` set it)",
        )


class Allowance:
    """Share of one client in its account and in the agent's memory. Thread-safe.

    Args:
        account: Account of the client's key or user.
        memory: Memory limit of the agent.
        limits: Limits of the agent.
    """

    def __init__(self, account: Account, memory: MemoryLimit, limits: Limits) -> None:
        self.account = account
        self.memory = 0  # bytes charged to the client
        self._staging = 0  # its regions that are staging memory
        self._limit = memory
        self._limits = limits
        self._lock = threading.Lock()

    def charge_memory(self, size: int) -> None:
        """Charge `size` bytes to the client, its account and the agent.

        Raises:
            OutOfMemory: The agent has less left; nothing was charged.
            LimitReached: It exceeds the limit of the client or its account; nothing was charged.
        """
        self._limit.charge(size)
        try:
            self.account.charge(memory=size)
            try:
                self._charge_client(size)
            except LimitReached:
                self.account.release(memory=size)
                raise
        except LimitReached:
            self._limit.release(size)
            raise

    def _charge_client(self, size: int) -> None:
        most = self._limits.memory_each
        with self._lock:
            if self.memory + size > most:
                raise LimitReached(
                    errno.EDQUOT,
                    f"{size} bytes asked for, {most - self.memory} of the {most} that a client may "
                    "have at this agent are left (`dgkit serve --max-client-memory` sets it)",
                )
            self.memory += size

    def release_memory(self, size: int) -> None:
        """Return `size` bytes that charge_memory() charged."""
        with self._lock:
            self.memory -= size
        self.account.release(memory=size)
        self._limit.release(size)

    def charge_region(self, held: int, *, staging: bool = False) -> bool:
        """Charge one region and its file descriptors to a client that has `held` regions.

        Staging memory is charged its file descriptors only.

        Returns:
            Whether the region counts as staging memory: the client said so, and has fewer than
            _STAGING others.

        Raises:
            LimitReached: The client or its account may not have another region.
        """
        most = self._limits.regions_each
        with self._lock:
            staging = staging and self._staging < _STAGING
            if held - self._staging >= most and not staging:
                raise LimitReached(
                    errno.ENOSPC,
                    f"a client may have {most} regions at this agent: close some first (`dgkit "
                    "serve --max-regions` and the limit of file descriptors, `ulimit -Hn`, set it)",
                )
            self.account.charge(regions=int(not staging), descriptors=REGION_FDS)
            self._staging += staging
        return staging

    def release_region(self, *, staging: bool = False) -> None:
        """Release what charge_region() charged; `staging` is the value that it returned."""
        with self._lock:
            self._staging -= staging
        self.account.release(regions=int(not staging), descriptors=REGION_FDS)


def check_user(uid: int) -> None:
    """Check that the user of a Unix connection is the agent's or root; -1 means tcp.

    The socket may be in a folder that other users can reach. Clients over tcp are identified by
    keys.

    Raises:
        PeerRefused: It is another user.
    """
    if uid not in (-1, 0, os.geteuid()):
        raise PeerRefused(
            f"the agent serves user {os.geteuid()}, and you are user {uid}: start your own, or "
            "connect by tcp:// with keys"
        )
