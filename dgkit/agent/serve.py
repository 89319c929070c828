"""serve(): an agent as the main job of a process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..errors import NativeError
from ..wire.address import HEARTBEAT_S, remove_of
from .agent_limits import CLIENTS, REGIONS
from .server import Agent

if TYPE_CHECKING:
    from ..dma import FaultRule

__all__ = ["leave", "serve"]

_TURN_S = 0.0005  # Python's default is 5 ms


def serve(
    address: str | None = None,
    *,
    role: str = "dpu",
    max_memory: int | None = None,
    provider: str = "soft",
    gpu: int = 0,
    pci: str | None = None,
    rdma: str | None = None,
    rules: Sequence[FaultRule] = (),
    keys: str | None = None,
    shared_telemetry: bool = False,
    telemetry_port: int = 0,
    heartbeat: float = HEARTBEAT_S,
    max_clients: int = CLIENTS,
    max_regions: int = REGIONS,
    max_client_memory: int | None = None,
    max_share: int | None = None,
    ready: Callable[[str], None] | None = None,
    watch_fd: int = -1,
) -> bool:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Args:
        address: Address to listen at; a new socket in the runtime folder if None. tcp://HOST:0
            takes a free port.
        role: "dpu" moves the bytes, "host" lends its memory.
        max_memory: Bytes of host memory that clients may allocate; half of the machine's, or
            of the container's limit, if None.
        provider: How bytes move.
        gpu: Number of the GPU that copies, for the provider "cuda".
        pci: Address of the PCI function, for the providers "doca" and "softdoca".
        rdma: Name of the RDMA device, for the provider "verbs".
        rules: Faults to inject, for the provider "fault".
        keys: Name of the key pair, for tcp; "default" if None.
        shared_telemetry: Whether a client sees the samples and totals of all clients; if not, it
            sees those that it caused.
        telemetry_port: Port for latency samples, over tcp://; 0: a free one.
        heartbeat: Seconds for which either side of a connection may be silent before the other one
            ends it, over tcp://; 0.6 to 30, more on a slow machine. Clients take it from the
            address.
        max_clients: Clients at a time.
        max_regions: Regions of one client; fewer where file descriptors are short.
        max_client_memory: Bytes of host memory that one client may allocate; three quarters of
            `max_memory` if None.
        max_share: Percent of clients, regions, file descriptors, memory and subscriptions that one
            key or user may have; if None, all for the user of an ipc:// address, and for a key as
            much as for each other allowed one, but a 16th at least.
        ready: Called with the address once the agent listens.
        watch_fd: Descriptor whose end-of-file ends the agent, too.

    Returns:
        False if a client's work did not end: call leave() then, which ends the process despite the
        thread that hangs.

    Raises:
        PeerRefused: tcp without keys.
        NativeError: The address is taken.
        DeviceUnavailable: The provider cannot be used.
    """
    with _signals() as signals, _short_turns():
        try:
            agent = Agent(
                address, role=role, max_memory=max_memory, provider=provider, gpu=gpu, pci=pci,
                rdma=rdma, rules=rules, keys=keys,
                shared_telemetry=shared_telemetry, max_clients=max_clients,
                max_regions=max_regions, max_client_memory=max_client_memory, max_share=max_share,
                telemetry_port=telemetry_port, heartbeat=heartbeat,
                watch_fd=watch_fd, signal_fd=signals.fd,
            )  # fmt: skip
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


def leave(code: int) -> NoReturn:
    """End this process at once, whatever its threads do, and remove its sockets."""
    with contextlib.suppress(Exception):  # nothing may prevent the exit
        remove_of(os.getpid())
    os._exit(code)


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads take turns more often: a client's worker waits for a busy loop at each step."""
    previous = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)


class _StopSignals:
    """Stops the agent on a signal, or as soon as it is attached if the signal came before.

    `fd` is readable once a signal has come, and `received` says so.
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

    Python runs handlers in the main thread, which sleeps in libzmq: a signal that another thread
    took, or that came just before that sleep, would not end it. So each also writes to a pipe.
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
