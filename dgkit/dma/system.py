# SPDX-License-Identifier: Apache-2.0
"""CPUs and the clock, as the C core sees them."""

from __future__ import annotations

from ._ffi import lib


def cpus() -> int:
    """Return how many CPUs this process may use at once.

    Sources: affinity (sched_getaffinity(2)) and the cgroup's CPU quota.
    """
    return int(lib.dg_cpus())


def now_ns() -> int:
    """Return CLOCK_MONOTONIC in ns, the clock of all time stamps."""
    return int(lib.dg_now_ns())
