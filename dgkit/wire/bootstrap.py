"""What a session and the software DPU that it starts tell each other over the pipe that ties their
lives, before the first socket is open."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .replies import Failed

__all__ = ["Start", "Started", "decode_start", "decode_started"]


class Start(Struct, frozen=True):
    """What a process that starts a software DPU tells it, over the pipe that ties their lives."""

    provider: str
    rules: list[dict[str, object]]
    max_memory: int
    gpu: int = 0
    pci: str | None = None


class Started(Struct, frozen=True):
    """The software DPU's answer: where it listens, or why it cannot."""

    endpoint: str
    failed: Failed | None


decode_start = msgspec.msgpack.Decoder(Start).decode
decode_started = msgspec.msgpack.Decoder(Started).decode
