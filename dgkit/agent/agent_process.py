# SPDX-License-Identifier: Apache-2.0
"""serve(): an agent as the main job of a process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import NativeError
from .serve_options import ServeOptions
from .server import Agent

_TURN_S = 0.0005  # Python's default is 5 ms


def serve(
    address: str | None = None,
    *,
    ready: Callable[[str], None] | None = None,
    watch_fd: int = -1,
    **options: Any,
) -> bool:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Args:
        address: Address to listen at; a new socket in the runtime folder if None.
        ready: Called with the address once the agent listens.
        watch_fd: Descriptor whose end-of-file also ends the agent.
        options: The other attributes of ServeOptions.

    Returns:
        False if a client's work did not end: then call leave(), which ends the process despite the
        hanging thread.

    Raises:
        PeerRefused: tcp without keys.
        NativeError: The address is taken.
        DeviceUnavailable: The provider cannot be used.
    """
    with _signals() as signals, _short_switch_interval():
        try:
            agent = Agent(ServeOptions(address, **options), watch_fd=watch_fd, signal_fd=signals.fd)
        except NativeError as exc:
            if exc.errno == errno.ECANCELED and signals.received:
                return True
            raise
        signals.attach(agent)
        try:
            if ready is not None:
                ready(agent.endpoint)
            agent.run()
        finally:
            ended = agent.close()
    return ended


@contextlib.contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Shorten the switch interval, since workers wait for the busy loop at each step."""
    previous = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)


class _StopSignals:
    """Stops the agent on a signal; if the signal came before the agent is attached, on attach().

    `fd` is readable and `received` is true once a signal has come.
    """

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd
        self.received = False
        self._agent: Agent | None = None

    def handle(self, *_: object) -> None:
        """Handle a signal."""
        self.received = True
        if self._agent is not None:
            self._agent.stop()

    def attach(self, agent: Agent) -> None:
        """Set the agent to stop."""
        self._agent = agent
        if self.received:
            agent.stop()


@contextlib.contextmanager
def _signals() -> Iterator[_StopSignals]:
    """Install signal handlers for the duration of the block.

    Python runs handlers in the main thread, which sleeps in libzmq: a signal delivered to another
    thread, or just before that sleep, would not end the sleep. So each signal also writes to a
    pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _StopSignals()
        return
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signals = _StopSignals(reader)
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup(1)
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, signals.handle) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        os.close(reader)
        os.close(writer)
