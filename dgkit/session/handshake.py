"""The session's side of the handshake: keys, Hello, and whether the other side is reachable."""

from __future__ import annotations

import errno
import os
from typing import Any

from .._version import __version__
from ..errors import PeerRefused, PeerTimeout, Unsupported
from ..types import DOCA
from ..wire import keys as keyring
from ..wire.address import Address
from ..wire.connection import Connection
from ..wire.host_id import boot_id, host_name
from ..wire.messages import VERSION, Hello


def identity(where: Address, keys: str | None) -> tuple[str, str] | None:
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


def greet(link: Connection, timeout: float) -> Any:
    """Send Hello and return the agent's Welcome.

    Raises:
        PeerTimeout: The agent did not answer within `timeout` seconds.
    """
    try:
        welcome = link.ask(
            Hello, VERSION, os.getpid(), boot_id(), host_name(), __version__, timeout=timeout
        )
    except PeerTimeout:
        if link.liveness.connected:
            raise
        raise PeerTimeout(f"no ZeroMQ peer answered at {link.address} within {timeout} s") from None
    link.pump()  # whose socket it is, which the reply may have overtaken
    link.check()
    link.start_at(welcome.first_id)
    link.timeout = timeout
    if welcome.boot == boot_id():
        link.liveness.pid = welcome.pid
    return welcome


def check_reach(welcome: Any, mover: str, boot: str) -> None:
    """Check that the provider which moves the bytes reaches the agent's machine.

    Args:
        welcome: The agent's Welcome.
        mover: The provider that moves the bytes.
        boot: Boot id of the machine at the other end.

    Raises:
        Unsupported: The provider does not reach it.
    """
    if welcome.boot == boot:
        return
    other = ""
    if welcome.role == "host":
        other = ", or let a DPU's agent move the bytes: connect(DPU_ADDRESS, host=ADDRESS)"
    if mover in ("soft", "fault", "cuda", "softdoca"):
        raise Unsupported(
            errno.EXDEV,
            f"the agent runs on another machine ({welcome.machine}) and provider {mover!r} reaches "
            f"only memory of the same machine; use 'verbs' or 'doca'{other}",
        )
    if mover in DOCA and welcome.provider not in DOCA:
        raise Unsupported(
            errno.EXDEV,
            f"the agent on {welcome.machine} exports its memory by {welcome.provider!r}; across "
            f"machines DOCA reaches only what DOCA exports: start it by "
            f"`dgkit serve --role host --provider {mover}`",
        )
    if mover == "verbs" and welcome.provider != "verbs":
        raise Unsupported(
            errno.EXDEV,
            f"the agent on {welcome.machine} exports its memory by {welcome.provider!r}; 'verbs' "
            "reaches only what 'verbs' exports: start it by "
            "`dgkit serve --role host --provider verbs`",
        )
