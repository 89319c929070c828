# SPDX-License-Identifier: Apache-2.0
"""Give Ethernet queues and rules of a replay a network, frames and structures of doca_flow."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from typing import Any

from .functions import Parameter
from .trace_file import Callback, Trace

_NON_SHARED, _RSS, _DROP = 2, 1, 4  # enum doca_flow_resource_type, doca_flow_fwd_type
_STRUCTURE_BYTES = 512  # more than any of doca_flow.h
OF_FRAMES = "doca_eth_rxq_"  # callbacks
_MOST_FRAMES = 128  # of a batch
# A broadcast of 64 bytes: UDP of IPv4, from and to no port.
_HEADER = struct.pack(
    ">HHHBBH4s4s", 50, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
)
_FRAME = (b"\xff" * 6 + b"\x02" + bytes(5) + b"\x08\x00" + b"\x45\x00" + _HEADER).ljust(64, b"\0")


class _Rss(ctypes.Structure):
    _fields_ = (
        ("outer_flags", ctypes.c_uint32),
        ("inner_flags", ctypes.c_uint32),
        ("queues_array", ctypes.POINTER(ctypes.c_uint16)),
        ("nr_queues", ctypes.c_int),
    )


class _Forward(ctypes.Structure):
    """softdoca's struct doca_flow_fwd."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("rss_type", ctypes.c_uint32),
        ("rss", _Rss),
        ("port_id", ctypes.c_uint16),
        ("next_pipe", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
    )


class Network:
    """The other end of the wire: takes what is sent, and sends frames to the receive queues.

    A trace has no frames and no contents of structures. Rules of a replay match each frame, and
    forward it to the first queue that gets a number.

    Args:
        trace: What is replayed.
    """

    def __init__(self, trace: Trace) -> None:
        inner, self._outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._inner = inner  # stays open: each port duplicates it
        os.environ["SOFTDOCA_NET"] = f"fd:{inner.fileno()}"
        self._queue: int | None = next(
            (
                call.arguments[1]
                for call in trace.every_call()
                if call.name == "doca_eth_rxq_apply_queue_id" and call.result == 0
            ),
            None,
        )
        self._kept: list[Any] = []  # what structures point to
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        while self._outer.recv(1 << 16):
            continue

    def send(self, callbacks: list[Callback]) -> None:
        """Send as many frames as the recorded callbacks that were not called yet report."""
        missing = [callback for callback in callbacks if not callback.is_done]
        for callback in filter(is_of_frames, missing):
            for _ in range(_frames_of(callback)):
                try:
                    self._outer.send(_FRAME, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return

    def structure(self, parameter: Parameter) -> Any:
        """Return the structure for an argument of doca_flow."""
        if parameter.name == "fwd":
            return ctypes.pointer(self._forward())
        structure = ctypes.create_string_buffer(_STRUCTURE_BYTES)
        if parameter.type.count("*") < 2:
            return structure
        self._kept.append(structure)
        return ctypes.pointer(ctypes.c_void_p(ctypes.addressof(structure)))

    def _forward(self) -> _Forward:
        if self._queue is None:
            return _Forward(_DROP)
        queue = ctypes.c_uint16(self._queue)
        self._kept.append(queue)
        return _Forward(_RSS, _NON_SHARED, _Rss(1, 0, ctypes.pointer(queue), 1))


def is_of_frames(callback: Callback) -> bool:
    """Return whether a callback reports received frames."""
    return callback.function.name.startswith(OF_FRAMES)


def _frames_of(callback: Callback) -> int:
    names = [parameter.name for parameter in callback.function.parameters]
    if "events_number" not in names:
        return 1
    count: int = callback.arguments[names.index("events_number")]
    return min(max(count, 0), _MOST_FRAMES)
