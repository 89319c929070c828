# SPDX-License-Identifier: Apache-2.0
"""Identity of this machine, and the state of a process on it."""

from __future__ import annotations

import os
import select
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the kernel's boot id (random(4)); processes with the same one share a machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def host_name() -> str:
    """Return the kernel's host name, at most 256 characters."""
    return os.uname().nodename[:256]


def ends_within(pid: int, seconds: float) -> bool:
    """Return whether a process ends within `seconds`: a killed process loses its sockets first."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # no descriptors left
        return process_state(pid) == "gone"
    try:
        watch = select.poll()  # select() accepts no descriptor above 1023
        watch.register(fd, select.POLLIN)
        return bool(watch.poll(1000 * seconds))
    finally:
        os.close(fd)


def process_state(pid: int) -> str:
    """Return the state of a process, from the third field of /proc/PID/stat (proc_pid_stat(5)).

    Returns:
        `running`, `stopped` (SIGSTOP, Ctrl-Z, a debugger) or `gone` (no such process, or a zombie).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    letter = stat.rpartition(b")")[2].split()[0]  # the second field may contain any byte
    if letter in (b"T", b"t"):
        return "stopped"
    return "gone" if letter in (b"Z", b"X") else "running"
