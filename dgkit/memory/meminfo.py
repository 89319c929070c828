# SPDX-License-Identifier: Apache-2.0
"""Memory available on this machine, so that a request that is too large raises an error."""

from __future__ import annotations

import contextlib
import os
from functools import cache

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator

# Files of a memory cgroup: limit, usage, and the prefix of the hierarchical sums in memory.stat.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2 = ("memory.max", "memory.current", "")


def available_bytes() -> int:
    """Return the smaller of the machine's MemAvailable and the cgroups' remaining limits, in bytes.

    Each cgroup from this process's own up to the root is considered. Page cache can be reclaimed,
    so it counts as available, as in MemAvailable.

    Sources: proc_meminfo(5); the kernel's admin-guide, cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    left = (limit - _used(folder, files) for folder, files, limit in _limits())
    return max(0, min([_mem_available(), *left]))


def total_bytes() -> int:
    """Return the smaller of the machine's memory and the limits of this process's cgroups."""
    return min([_machine_bytes(), *(limit for _, _, limit in _limits())])


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read_proc(name: str) -> str:
    # pathlib would cost 8 ms to import. As text, each open() may leave an attribute's name in
    # CPython's cache of 4,096 methods: the process would grow for hours, by 300 KiB.
    with open(name, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read().decode("utf-8", "surrogateescape")


def _lines(name: str) -> list[str]:
    with contextlib.suppress(OSError):
        return _read_proc(name).splitlines()
    return []


def _mem_available() -> int:
    for line in _read_proc("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _limits() -> Iterator[tuple[str, tuple[str, str, str], int]]:
    """Yield folder, file names and limit of each cgroup that limits this process.

    Limits above the machine's memory are skipped: cgroup v1 represents "no limit" by such a number.
    """
    paths, machine = _paths(), _machine_bytes()
    for files, root, mount in _memory_mounts():
        for folder in _folders(paths.get(files, ""), root, mount):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                limit = int(_read_proc(f"{folder}/{files[0]}"))
                if limit < machine:
                    yield folder, files, limit


def _used(folder: str, files: tuple[str, str, str]) -> int:
    """Return the memory in use in a cgroup, without its page cache, in bytes."""
    used = 0
    with contextlib.suppress(OSError, ValueError):
        used = int(_read_proc(f"{folder}/{files[1]}"))
    rows = (line.partition(" ") for line in _lines(f"{folder}/memory.stat"))
    cached = {f"{files[2]}inactive_file", f"{files[2]}active_file"}
    return used - sum(int(value) for name, _, value in rows if name in cached)


def _paths() -> dict[tuple[str, str, str], str]:
    """Return the path of this process's cgroup in each hierarchy with memory. See cgroups(7)."""
    paths = {}
    for line in _lines("/proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            paths[_V1] = path
        elif not controllers:
            paths[_V2] = path
    return paths


@cache
def _memory_mounts() -> tuple[tuple[tuple[str, str, str], str, str], ...]:
    """Return the mounted hierarchies with memory: file names, root and mount point.

    The root is the cgroup that the mount point shows. Source: proc_pid_mountinfo(5).
    """
    mounts = []
    for line in _lines("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            mounts.append((_V2, fields[3], fields[4]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            mounts.append((_V1, fields[3], fields[4]))
    return tuple(mounts)


def _folders(path: str, root: str, mount: str) -> Iterator[str]:
    """Yield the folder of the cgroup `path`, then those above it up to the mount point."""
    root = root.rstrip("/")
    inside = path.startswith(f"{root}/") and ".." not in path.split("/")
    parts = [part for part in path[len(root) :].split("/") if part] if inside else []
    while parts:
        yield "/".join([mount, *parts])
        parts.pop()
    yield mount
