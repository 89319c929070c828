"""Memory available on this machine, so that too large a request is an error and no OOM kill."""

from __future__ import annotations

import contextlib

__all__ = ["available_bytes"]


def available_bytes() -> int:
    """Return the smaller of the machine's MemAvailable and the cgroup's remaining limit, in bytes.

    Sources: proc_meminfo(5); cgroup v2, memory.max and memory.current.
    """
    return min(_mem_available(), _cgroup())


def _text(name: str) -> str:
    with open(name, encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 8 ms to import
        return file.read()


def _mem_available() -> int:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _cgroup() -> int:
    # Without cgroup v2, or without a limit ("max"), MemAvailable applies.
    with contextlib.suppress(OSError, ValueError):
        most = int(_text("/sys/fs/cgroup/memory.max"))
        return max(0, most - int(_text("/sys/fs/cgroup/memory.current")))
    return 1 << 62
