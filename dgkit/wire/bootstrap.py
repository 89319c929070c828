"""Messages between a session and the software DPU that it starts, before a socket is open.

They use the pipe whose end-of-file ends the software DPU with the session.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .replies import Failed

__all__ = ["Start", "Started", "decode_start", "decode_started"]


class Start(Struct, frozen=True):
    """Configuration of a software DPU, from the process that starts it."""

    provider: str
    rules: list[dict[str, object]]
    max_memory: int
    gpu: int = 0
    pci: str | None = None


class Started(Struct, frozen=True):
    """Reply of a software DPU: the address where it listens, or the exception that prevented it."""

    endpoint: str
    failed: Failed | None


decode_start = msgspec.msgpack.Decoder(Start).decode
decode_started = msgspec.msgpack.Decoder(Started).decode
