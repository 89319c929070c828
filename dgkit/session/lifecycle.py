"""The end of a session: what it frees, in which order."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from ..errors import PeerError
from ..wire.messages import Bye

if TYPE_CHECKING:
    from .session import Session

__all__ = ["close", "forgotten"]


def close(session: Session) -> None:
    """As Session.close(). What fails does not keep the rest from being freed."""
    link, owned = session._link, session._owned
    with contextlib.ExitStack() as last_to_first:
        last_to_first.push(session.filing.ended)
        last_to_first.callback(session.device.close)
        session.filing.free_all(last_to_first)
        last_to_first.callback(session.dpu.close)
        if owned is not None:
            last_to_first.callback(owned.close)
        last_to_first.callback(link.close)
        for monitor in list(session.monitors):
            monitor.close()
        if owned is None and link.dead is None:
            with contextlib.suppress(PeerError):  # gone or stuck: it frees all without us
                link.ask(Bye, timeout=min(session.timeout, 1.0))


def forgotten(session: Session) -> None:
    """Nobody closed it, and nobody will: warns, and closes it."""
    try:
        warnings.warn(f"{session!r} was not closed", ResourceWarning, source=session, stacklevel=3)
    finally:
        session.close()
