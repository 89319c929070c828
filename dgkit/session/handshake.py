"""The first request of a session: who is there, and can its memory be reached."""

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

__all__ = ["greet", "identity"]


def identity(where: Address, keys: str | None) -> tuple[str, str] | None:
    """This side's key pair, for tcp. PeerRefused: there is none, or the address has no key."""
    if not where.tcp:
        return None
    if not where.key:
        raise PeerRefused(
            f"{where} says no key: tcp needs the agent's public key in the address "
            "(tcp://HOST:PORT?key=KEY, as `dgkit serve` prints it)"
        )
    pair = keyring.load(keys or "default")
    return pair.public, pair.secret


def greet(link: Connection, provider: str, timeout: float) -> Any:
    """Says Hello; the agent's Welcome. Unsupported: the provider does not reach its machine."""
    try:
        welcome = link.ask(
            Hello, VERSION, os.getpid(), boot_id(), host_name(), __version__, timeout=timeout
        )
    except PeerTimeout:
        if link.liveness.connected:
            raise
        raise PeerTimeout(f"nothing speaks ZeroMQ at {link.address} within {timeout} s") from None
    link.start_at(welcome.first_id)
    mover = welcome.provider if welcome.role == "dpu" else provider
    if welcome.boot == boot_id():
        link.liveness.pid = welcome.pid
    elif mover in ("soft", "fault", "cuda", "softdoca"):
        raise Unsupported(
            errno.EXDEV,
            f"the agent runs on another machine ({welcome.machine}) and provider {mover!r} reaches "
            "only memory of its own machine; providers 'doca' and 'verbs' reach across",
        )
    elif mover in DOCA and welcome.provider not in DOCA:
        raise Unsupported(
            errno.EXDEV,
            f"the agent on {welcome.machine} lends its memory by {welcome.provider!r}, and DOCA "
            f"reaches there only what DOCA exports: `dgkit serve --role host --provider {mover}`",
        )
    return welcome
