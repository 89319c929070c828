# SPDX-License-Identifier: Apache-2.0
"""Threads without which a process of dgkit's own (an agent, a testbed) would answer no more."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import NoReturn

from .address import remove_of

FAILURE = os.EX_SOFTWARE  # exit code, for which a service manager restarts the process
_log = logging.getLogger("dgkit")


def leave(code: int) -> NoReturn:
    """End this process at once, whatever its threads do, and remove its sockets."""
    with contextlib.suppress(Exception):  # no error may prevent the exit
        remove_of(os.getpid())
    os._exit(code)


def essential_thread(name: str, run: Callable[[], object]) -> threading.Thread:
    """Return a daemon thread whose unexpected exception ends this process with FAILURE.

    The process could not serve without the thread, or end in order: its loop may wait for the
    thread. Not for the process of a user, such as a kernel.

    Args:
        name: Name of the thread, also in the log.
        run: What it runs. Every exception that it raises is unexpected.
    """

    def guarded() -> None:
        try:
            run()
        except BaseException as exc:
            _end_process(name, exc)

    return threading.Thread(target=guarded, name=name, daemon=True)


def _end_process(name: str, exc: BaseException) -> NoReturn:
    try:
        text = "the thread %s has failed, so this process ends with exit code %d: %s: %s"
        _log.critical(text, name, FAILURE, type(exc).__name__, exc, exc_info=exc)
    finally:
        leave(FAILURE)
