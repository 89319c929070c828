"""Checks of an agent's replies: a client does not trust the agent."""

from __future__ import annotations

from typing import Any

import msgspec

from ..units import printable
from . import messages as m

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # by decode_reply()

# The reply to each request, unless it is Failed.
REPLIES: dict[type, type] = {
    m.Hello: m.Welcome,
    m.Allocate: m.Allocated,
    m.Import: m.Imported,
    m.Export: m.Exported,
    m.Free: m.Done,
    m.Move: m.Moved,
    m.Digest: m.Digested,
    m.Latency: m.LatencyDone,
    m.Rate: m.RateDone,
    m.Cancel: m.Done,
    m.Stats: m.StatsDone,
    m.Subscribe: m.Subscribed,
    m.Bye: m.Done,
    m.Watch: m.Watching,
    m.Outstanding: m.OutstandingDone,
    m.OpenRing: m.RingOpened,
    m.CloseRing: m.Done,
    m.Stage: m.Done,
    m.Fetch: m.Fetched,
}
_TEXTS = (
    m.Welcome, m.Allocated, m.Imported, m.Digested, m.LatencyDone, m.RateDone, m.StatsDone,
    m.Subscribed, m.Watching,
)  # fmt: skip


def clean(reply: Any) -> Any:
    """Escape the control characters in a reply's texts, in place, and return it."""
    if isinstance(reply, _TEXTS):
        for name in reply.__struct_fields__:
            setattr(reply, name, _clean(getattr(reply, name)))
    return reply


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _clean(item) for key, item in value.items()}
    return value
