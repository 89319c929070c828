"""serve(): an agent as a process's main job."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..wire.address import remove_of
from .server import Agent

if TYPE_CHECKING:
    from ..dma import FaultRule

__all__ = ["leave", "serve"]


def serve(
    address: str | None = None,
    *,
    role: str = "dpu",
    max_memory: int | None = None,
    provider: str = "soft",
    gpu: int = 0,
    pci: str | None = None,
    rules: Sequence[FaultRule] = (),
    keys: str | None = None,
    ready: Callable[[str], None] | None = None,
    watch_fd: int = -1,
) -> bool:
    """Serves until SIGTERM, SIGINT or SIGHUP; `ready` is told the address.

    `role`: "dpu" moves the bytes, "host" lends its memory. Without `address` it listens on a socket
    of its own in the runtime folder; tcp://HOST:0 takes a free port. Over tcp `keys` names its
    key pair (default "default"). `gpu`: the number of the GPU that copies, for the provider
    "cuda"; `pci`: the address of the function, for "doca" and "softdoca". `max_memory`: bytes
    of the host that clients may allocate, half of the machine's if None. `watch_fd`: it ends,
    too, when this descriptor does.
    PeerRefused: tcp without keys. NativeError: the address is taken. DeviceUnavailable.
    False: it ended while a client's work would not; leave() ends the process, whose thread hangs.
    """
    with _signals() as ends:
        agent = Agent(
            address, role=role, max_memory=max_memory, provider=provider, gpu=gpu, pci=pci,
            rules=rules, keys=keys, watch_fd=watch_fd, signal_fd=ends.fd,
        )  # fmt: skip
        ends.stops(agent)
        try:
            if ready is not None:
                ready(agent.endpoint)
            agent.run()
        finally:
            ended = agent.close()
    return ended


def leave(code: int) -> NoReturn:
    """Ends this process at once, whatever its threads do, and leaves none of its sockets."""
    with contextlib.suppress(Exception):  # nothing may keep it here
        remove_of(os.getpid())
    os._exit(code)


class _Ends:
    """What the signals ask for; an agent that is not made yet is stopped when it is."""

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd  # readable once a signal came
        self._asked = False
        self._agent: Agent | None = None

    def ask(self, *_: object) -> None:
        """The handler of a signal."""
        self._asked = True
        if self._agent is not None:
            self._agent.stop()

    def stops(self, agent: Agent) -> None:
        """Which agent it is."""
        self._agent = agent
        if self._asked:
            agent.stop()


@contextlib.contextmanager
def _signals() -> Iterator[_Ends]:
    """Python runs handlers in the main thread, which sleeps in libzmq; a signal that another thread
    took, or that came just before that sleep, would not end it. So each also writes to a pipe."""
    if threading.current_thread() is not threading.main_thread():
        yield _Ends()
        return
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    ends, woken = _Ends(reader), signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup(1)
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ends.ask) for number in numbers}
    try:
        yield ends
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(reader)
        os.close(writer)
