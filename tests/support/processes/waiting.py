# SPDX-License-Identifier: Apache-2.0
"""Waits for a condition with a deadline, and the resources that a process holds."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], what: str, timeout: float = 20.0) -> T:
    """Call `look` until it returns something true; raise AssertionError after the deadline."""
    start = time.monotonic()
    while True:
        seen = look()
        if seen:
            return seen
        waited = time.monotonic() - start
        assert waited < timeout, f"not within {timeout} s: {what}"
        time.sleep(min(0.05, 0.002 + waited / 20))  # looks cost a page or a process CPU time


def steady(look: Callable[[], T], timeout: float = 10.0) -> T:
    """Return a value once it stays the same: what a client left is freed in the background."""
    deadline = time.monotonic() + timeout
    seen, same = look(), 0
    while same < 50:
        assert time.monotonic() < deadline, f"it never settles: {seen}"
        time.sleep(0.004)
        now = look()
        seen, same = now, same + 1 if now == seen else 0
    return seen


def gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    from dgkit.wire.host_id import process_state

    return process_state(pid) == "gone"


def stop(pid: int) -> None:
    """Stop a process by SIGSTOP, and wait until each of its threads has stopped."""

    def state(stat: Path) -> str:
        try:
            return stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # a thread that ended meanwhile
            return "X"

    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(
        lambda: all(state(task / "stat") in "TtZX" for task in tasks.iterdir()),
        f"process {pid} has stopped",
        timeout=20,
    )


def held(pid: int | None = None) -> dict[str, int]:
    """Return the numbers of fds, mappings and threads of a process."""
    root = Path(f"/proc/{pid or os.getpid()}")
    maps = [line for line in (root / "maps").read_text().splitlines() if "memfd" in line]
    return {
        "fds": len(list((root / "fd").iterdir())),
        "memfd mappings": len(maps),
        "threads": len(list((root / "task").iterdir())),
    }


def child_states(pid: int | None = None) -> dict[int, str]:
    """Return the child processes of a process, and what each is doing; a zombie is "gone"."""
    from dgkit.wire.host_id import process_state

    found: list[str] = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += (task / "children").read_text().split()
    return {int(child): process_state(int(child)) for child in found}


def children(pid: int | None = None) -> list[int]:
    """Return the running child processes of a process."""
    return [child for child, state in child_states(pid).items() if state != "gone"]
