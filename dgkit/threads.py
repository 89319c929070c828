# SPDX-License-Identifier: Apache-2.0
"""Starts of threads, where the system may have none left."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import sys
import time

from .errors import LimitReached

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = 4 << 20  # more than the sockets of a connection take
_PAUSE_S, _END_S = 0.0001, 1.0


@contextlib.contextmanager
def starting(what: str) -> Iterator[None]:
    """Start a thread in the block, for what `what` names.

    Raises:
        LimitReached: The system has no thread left.
    """
    try:
        yield
    except RuntimeError as exc:  # "can't start new thread"
        if sys.is_finalizing():
            raise
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        raise LimitReached(
            errno.EAGAIN,
            f"{what} cannot start another thread: this user's processes and threads (`ulimit -u`, "
            f"RLIMIT_NPROC, is {limit}), those of its container (pids.max) or the memory for its "
            "stack (`ulimit -v`) are at their limit",
        ) from exc


def check_threads(what: str, needed: int) -> None:
    """Check that libzmq can start `needed` threads and allocate memory, for what `what` names.

    Otherwise it would abort the process (thread.cpp, err.hpp).

    Raises:
        LimitReached: The system has too few left, or too little.
    """
    import mmap

    held, numbers = _thread.allocate_lock(), list[int]()

    def wait() -> None:
        numbers.append(_thread.get_native_id())
        with held:
            pass

    try:
        with held:
            for _ in range(needed):
                with starting(what):
                    _thread.start_new_thread(wait, ())
            try:
                mmap.mmap(-1, _MEMORY).close()
            except OSError as exc:
                raise LimitReached(
                    exc.errno,
                    f"{what} needs {_MEMORY >> 20} MiB of address space: the limit (`ulimit -v`) "
                    "is reached",
                ) from exc
            while len(numbers) < needed:
                time.sleep(_PAUSE_S)
    finally:
        # Wait until they have ended: libzmq may need their places and stacks
        deadline = time.monotonic() + _END_S
        while any(map(os.path.exists, (f"/proc/self/task/{number}" for number in numbers))):
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
