"""All messages and their codec: msgspec structs in MessagePack, one array per message.

The size of a message is bounded before it is decoded: libzmq drops a connection that sends more
than MAX_REQUEST to an agent, more than MAX_REPLY to a client, or a block of more than MAX_BLOCK.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .replies import *  # noqa: F403 (this module has all messages)
from .replies import Failed, Reply
from .requests import *  # noqa: F403
from .requests import Request

MAX_REQUEST = 1 << 16  # bytes
MAX_REPLY = 160 << 10  # bytes
MAX_BLOCK = 40 << 10  # bytes of a published block


class Start(Struct, frozen=True):
    """Configuration of a software DPU, from the process that starts it.

    Both it and the reply travel over a socket pair, whose end-of-file ends the software DPU
    together with the session.
    """

    provider: str
    rules: list[dict[str, object]]
    max_memory: int
    gpu: int = 0
    pci: str | None = None


class Started(Struct, frozen=True):
    """Reply of a software DPU: the address where it listens, or the exception that prevented it."""

    endpoint: str
    failed: Failed | None


class RingOffer(Struct, frozen=True):
    """A testbed's GPU queue: descriptors of its ring and of the memory of its kernels.

    doorbell: of a queue pair, "" for dgkit's own ring. starts: addresses of the ring and of the
    memory, as its kernels see them. port: of the host guest, for the answer.
    """

    ring: bytes
    locals: list[bytes]
    depth: int
    trace: bool
    doorbell: str
    starts: list[int]
    port: int


class RingAnswer(Struct, frozen=True):
    """The other guest serves that ring: ids or keys by which its kernels name the regions.

    Of a queue pair also its number, and address and size of the remote region.
    """

    ring: bytes
    remote: int
    locals: list[int]
    number: int = 0
    address: int = 0
    size: int = 0


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_ring_offer = msgspec.msgpack.Decoder(RingOffer).decode
decode_ring_answer = msgspec.msgpack.Decoder(RingAnswer).decode
decode_started = msgspec.msgpack.Decoder(Started).decode


def number_of(body: bytes, least: int) -> int:
    """Return the number of a request that cannot be decoded, or 0 if it is less than `least`.

    The number follows the kind, a positive fixint, in a fixarray (MessagePack specification).
    """
    if len(body) < 3 or body[0] & 0xF0 != 0x90 or body[1] & 0x80:
        return 0
    number, code = body[2], body[2]
    if 0xCC <= code <= 0xCF:  # uint 8 to uint 64
        width = 1 << (code - 0xCC)
        number = int.from_bytes(body[3 : 3 + width], "big")
    elif code & 0x80:
        return 0
    return number if least <= number < 1 << 63 else 0
