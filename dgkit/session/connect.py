# SPDX-License-Identifier: Apache-2.0
"""connect(): open a session with keys and Hello, if the other side is reachable."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..errors import DeviceUnavailable, PeerRefused, PeerTimeout, Unsupported
from ..files import check_descriptors
from ..types import DEFAULT_PROVIDER, DOCA, OWN_EXPORT, PROVIDERS
from ..wire import keys as keyring
from ..wire import saved
from ..wire.address import Address
from ..wire.connection import Connection
from ..wire.host_id import boot_id, host_name
from ..wire.messages import VERSION, Hello
from . import argument_checks

if TYPE_CHECKING:
    from ..dma import Device, FaultRule
    from ..wire.connection import Connection
    from ..wire.messages import Welcome
    from .backend import Backend
    from .resources import SessionResources
    from .session import Session
    from .spawn import SoftwareDpu


def own_keys(where: Address, keys: str | None) -> tuple[str, str] | None:
    """Return this side's key pair for tcp, as (public, secret); None for ipc.

    Raises:
        PeerRefused: There is no such key pair, or the address has no key.
    """
    if not where.tcp:
        return None
    if not where.key:
        raise PeerRefused(
            f"{where} has no key: tcp needs the agent's public key in the address "
            "(tcp://HOST:PORT?key=KEY, as `dgkit serve` prints it)"
        )
    pair = keyring.load(keys or "default")
    return pair.public, pair.secret


def exchange_hello(link: Connection, timeout: float) -> Welcome:
    """Send Hello, return the agent's Welcome and configure the connection accordingly.

    Raises:
        PeerTimeout: The agent did not answer within `timeout` seconds.
    """
    try:
        hello = Hello(
            version=VERSION, pid=os.getpid(), boot=boot_id(), machine=host_name(),
            package=__version__,
        )  # fmt: skip
        welcome: Welcome = link.ask(hello, timeout=timeout)
    except PeerTimeout:
        if link.peer_state.connected:
            raise
        raise PeerTimeout(f"no ZeroMQ peer answered at {link.address} within {timeout} s") from None
    link.pump()  # the event that says whose socket it is may come after the reply
    link.check()
    link.set_first_number(welcome.first_id)
    link.timeout = timeout
    if welcome.boot == boot_id():
        link.peer_state.pid = welcome.pid
    return welcome


def check_reach(welcome: Welcome, provider: str, boot: str) -> None:
    """Check that the provider which moves the bytes reaches the agent's machine.

    Args:
        welcome: The agent's Welcome.
        provider: The provider that moves the bytes.
        boot: Boot id of the machine at the other end.

    Raises:
        Unsupported: The provider does not reach it.
    """
    if welcome.boot == boot:
        return
    other = ""
    if welcome.role == "host":
        other = ", or let a DPU's agent move the bytes: connect(DPU_ADDRESS, host=ADDRESS)"
    if provider in ("soft", "fault", "cuda", "softdoca"):
        raise Unsupported(
            errno.EXDEV,
            f"the agent runs on another machine ({welcome.machine}) and provider {provider!r} "
            f"reaches only memory of the same machine; use 'verbs' or 'doca'{other}",
        )
    if provider in DOCA and welcome.provider not in DOCA:
        raise Unsupported(
            errno.EXDEV,
            f"the agent on {welcome.machine} exports its memory by {welcome.provider!r}; across "
            f"machines DOCA reaches only what DOCA exports: start it by "
            f"`dgkit serve --role host --provider {provider}`",
        )
    if provider == "verbs" and welcome.provider != "verbs":
        raise Unsupported(
            errno.EXDEV,
            f"the agent on {welcome.machine} exports its memory by {welcome.provider!r}; 'verbs' "
            "reaches only what 'verbs' exports: start it by "
            "`dgkit serve --role host --provider verbs`",
        )


_TIMEOUT_S = 5.0
_TIMEOUT_STARTS = 4  # a request may take as long as this number of starts of a software DPU
_DESCRIPTORS = 32  # file descriptors that a session uses after its first transfer, plus a reserve


def connect(
    address: str | None = None,
    *,
    host: str | None = None,
    provider: str = DEFAULT_PROVIDER,
    rules: Sequence[FaultRule] = (),
    keys: str | None = None,
    timeout: float | None = None,
    max_memory: int | None = None,
    gpu: int = 0,
    pci: str | None = None,
    rdma: str | None = None,
) -> Session:
    """Open a session with the agent at `address`, or with a software DPU that it starts and owns.

    Args:
        address: What `dgkit serve` prints: ipc:///PATH, or tcp://HOST:PORT?key=KEY; or "bluefield",
            the agent that `dgkit bluefield up` has started. None: start a software DPU. The
            arguments from `provider` to `max_memory` configure the software DPU, or this process if
            the agent is a host's, since this process then moves the bytes.
        host: Address of the host's agent, if both sides are agents and `address` is the DPU's. This
            process is then on neither side: its data crosses the connection to the DPU, without
            DMA, and the arguments from `provider` to `max_memory` have no effect.
        provider: How bytes move. With "verbs", "doca" and "softdoca" both sides use it.
        rules: Faults to inject, for the provider "fault".
        keys: Name of this side's key pair, for tcp; "default" if None.
        timeout: Seconds, for the start and for each plain request. None: for the start of a
            software DPU 30, and longer while it uses the CPU, and then 5 for each request, or four
            times as long as the start took; for an agent 5, or its heartbeat if that is longer.
        max_memory: Bytes that the other side may allocate.
        gpu: Number of the GPU that copies, for the provider "cuda".
        pci: Address of this process's PCI function, for DOCA; None: the first usable one.
        rdma: Name of this process's RDMA device ("mlx5_0"), for "verbs"; None: the first port with
            a link and an address.

    Raises:
        PeerLost: Nothing listens at the address.
        PeerRefused: The keys do not match.
        PeerVersion: The agent speaks another version of the protocol.
        PeerTimeout: The agent did not answer in time.
        DeviceUnavailable: The provider cannot be used.
        Unsupported: The agent is a DPU's on another machine, which the provider does not reach.
            With a host's agent there, the session opens for control and inspection, and its
            transfers raise this error.
        ValueError: `host` without `address`, or an agent has the other role.
    """
    if timeout is not None:
        timeout = argument_checks.seconds("timeout", timeout)
    argument_checks.text("provider", provider)
    argument_checks.text("keys", keys)
    argument_checks.text("host", host)
    if host is not None and address is None:
        raise ValueError("host is for two agents: connect(ADDRESS, host=ADDRESS)")
    options = {
        "provider": provider,
        "rules": argument_checks.fault_rules(rules),
        "gpu": argument_checks.within("gpu", gpu, 0, (1 << 32) - 1),
        "pci": pci,
        "rdma": rdma,
    }
    argument_checks.text("pci", pci)
    argument_checks.text("rdma", rdma)
    if max_memory is not None:
        max_memory = argument_checks.within("max_memory", max_memory, 1, (1 << 63) - 1)
    if gpu and provider not in ("cuda", "fault"):
        raise ValueError(f"gpu={gpu!r} is for the provider 'cuda', not for {provider!r}")
    if pci is not None and address is None and provider not in DOCA:
        raise ValueError(f"pci={pci!r} is for 'doca' and 'softdoca', not for {provider!r}")
    if rdma is not None and address is None and provider != "verbs":
        raise ValueError(f"rdma={rdma!r} is for the provider 'verbs', not for {provider!r}")
    if address is None:
        if provider not in PROVIDERS:
            text = f"no provider is called {provider!r}; the providers are {', '.join(PROVIDERS)}"
            raise DeviceUnavailable(errno.ENODEV, text, check="")
        return _with_software_dpu(options, max_memory, timeout)
    address, keys = saved.resolve(address, keys)
    check_descriptors("a session", _DESCRIPTORS if host is None else 2 * _DESCRIPTORS)
    if host is not None:
        return _open_two(address, host, keys, timeout or _request_timeout(address))
    return _open(address, options, keys, timeout or _request_timeout(address), None)


def _request_timeout(address: str) -> float:
    """Return the time limit of a request: 5 s, or the agent's heartbeat if that is longer."""
    from ..wire.address import parse

    return max(_TIMEOUT_S, parse(address).heartbeat)


def inspect(
    address: str, *, keys: str | None = None, timeout: float = _TIMEOUT_S
) -> tuple[Welcome, dict[str, int]]:
    """Return an agent's description of itself, and its counters as named by Session.stats().

    This process does not need a provider that reaches the agent's memory. Arguments and errors are
    those of connect().
    """
    from ..wire.address import parse
    from ..wire.connection import Connection
    from ..wire.messages import Stats

    address, keys = saved.resolve(address, keys)
    where = parse(address)
    with contextlib.closing(Connection(where, own_keys(where, keys))) as link:
        return exchange_hello(link, timeout), link.ask(Stats(), timeout=timeout).counters


def connect_to(dpu: SoftwareDpu) -> Session:
    """Open a session with a software DPU whose process was started, as connect() does.

    Raises:
        DgkitError: As connect(); the process has ended.
    """
    options = {"provider": DEFAULT_PROVIDER, "rules": (), "gpu": 0, "pci": None, "rdma": None}
    return _with_software_dpu(options, None, None, dpu)


def _with_software_dpu(
    options: dict[str, Any], max_memory: int | None, timeout: float | None,
    dpu: SoftwareDpu | None = None,
) -> Session:  # fmt: skip
    from .spawn import SoftwareDpu

    if dpu is None:
        check_descriptors("a session", _DESCRIPTORS)
        dpu = SoftwareDpu()
    try:
        from . import remote_dpu, session  # noqa: F401 (imported while the other process starts)

        began = time.monotonic()
        endpoint = dpu.listen(**options, max_memory=max_memory, timeout=timeout)
        slow = _TIMEOUT_STARTS * (time.monotonic() - began)

        def reopen() -> SessionResources:
            return _with_software_dpu(options, max_memory, timeout).detach_resources()

        return _open(endpoint, options, None, timeout or max(_TIMEOUT_S, slow), dpu, reopen)
    except BaseException:
        dpu.close()
        raise


def _export_options(provider: str, pci: str | None, rdma: str | None) -> dict[str, Any]:
    """Return the options of the device that exports memory to a DPU with that provider.

    Where DOCA or RDMA moves the bytes, the same provider exports the memory.
    """
    if pci is not None and provider not in DOCA:
        raise ValueError(f"pci={pci!r} is for a DPU that uses DOCA; the agent's uses {provider!r}")
    if rdma is not None and provider != "verbs":
        raise ValueError(
            f"rdma={rdma!r} is for a DPU that uses verbs; the agent's uses {provider!r}"
        )
    if provider in OWN_EXPORT:
        return {"provider": provider, "pci": pci, "rdma": rdma}
    return {"provider": "soft"}


def _open(
    address: str,
    options: dict[str, Any],
    keys: str | None,
    timeout: float,
    owned: SoftwareDpu | None,
    reopen: Callable[[], SessionResources] | None = None,
) -> Session:
    from ..dma import Device
    from ..wire.address import parse
    from ..wire.connection import Connection
    from .describe import local_info
    from .resources import SessionResources
    from .session import Session

    where = parse(address)
    link = Connection(where, own_keys(where, keys))
    try:
        welcome = exchange_hello(link, timeout)
        agent_is_dpu = welcome.role == "dpu"
        no_dma = _why_no_dma(welcome, welcome.provider if agent_is_dpu else options["provider"])
        if agent_is_dpu:
            options = _export_options(welcome.provider, options["pci"], options["rdma"])
        device = Device(**options)
        backend = _backend(
            link, device, welcome.provider if agent_is_dpu else None, timeout, no_dma
        )
        backend.emulated = agent_is_dpu and welcome.emulated
        role = "host" if agent_is_dpu else "dpu"
        this = local_info(device)
        return Session(
            SessionResources(role, welcome, this, device, backend, timeout, owned, reopen)
        )
    except BaseException:
        link.close()
        raise


def _why_no_dma(welcome: Welcome, provider: str) -> Unsupported | None:
    """Return why the provider that moves the bytes cannot reach the agent of a host, or None.

    Raises:
        Unsupported: The agent is a DPU's, which moves the bytes, and is out of reach.
    """
    from ..wire.host_id import boot_id

    try:
        check_reach(welcome, provider, boot_id())
    except Unsupported as error:
        if welcome.role == "dpu":
            raise
        return error
    return None


def _open_two(dpu_address: str, host_address: str, keys: str | None, timeout: float) -> Session:
    """Open a session whose two sides are agents."""
    from ..dma import Device
    from .describe import agent_info
    from .resources import SessionResources
    from .session import Session
    from .two_agents import TwoAgents

    with contextlib.ExitStack() as undo:
        link, dpu = _connect_agent(dpu_address, "dpu", keys, timeout, undo)
        host_link, host = _connect_agent(host_address, "host", keys, timeout, undo)
        check_reach(host, dpu.provider, dpu.boot)
        device = Device("soft")
        undo.callback(device.close)
        backend = TwoAgents(link, host_link, device, dpu.provider, timeout)
        backend.emulated = dpu.emulated
        session = Session(
            SessionResources("neither", dpu, agent_info(host), device, backend, timeout)
        )
        undo.pop_all()
    return session


def _connect_agent(
    address: str, role: str, keys: str | None, timeout: float, undo: contextlib.ExitStack
) -> tuple[Connection, Welcome]:
    """Return a connection to an agent of the given role, closed by `undo`, and its Welcome."""
    from ..wire.address import parse
    from ..wire.connection import Connection

    where = parse(address)
    link = Connection(where, own_keys(where, keys))
    undo.callback(link.close)
    welcome = exchange_hello(link, timeout)
    if welcome.role != role:
        raise ValueError(
            f"the agent at {where.endpoint} has the role {welcome.role}: connect(ADDRESS, "
            "host=ADDRESS) takes a DPU's agent first, and a host's as `host`"
        )
    return link, welcome


def _backend(
    link: Connection,
    device: Device,
    remote_provider: str | None,
    timeout: float,
    no_dma: Unsupported | None,
) -> Backend:
    """Return the DPU: the agent if it has `remote_provider`, else this process."""
    if remote_provider is not None:
        from .remote_dpu import RemoteDpu

        return RemoteDpu(link, device, remote_provider, timeout)
    from .local_dpu import LocalDpu

    return LocalDpu(link, device, timeout, no_dma)
