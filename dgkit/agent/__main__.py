"""The software DPU that connect() starts: `python -m dgkit.agent FD`.

FD is one end of a socket pair. The process that started this one has the other end: when it closes
that end, or dies in any way, this process ends and leaves no file.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Any

__all__ = ["main"]


def main(fd: int) -> int:
    """Receive the configuration, send the address, serve until end-of-file; return the exit code.

    Args:
        fd: This process's end of the socket pair.
    """
    from ..wire.address import sweep
    from ..wire.bootstrap import Started, decode_start
    from ..wire.error_codec import to_wire
    from .serve import leave

    with socket.socket(fileno=fd) as parent:
        request = parent.recv(1 << 20)
        if not request:  # the parent is gone already
            return 0
        start = decode_start(request)
        try:
            ended = _serve(start, parent)
        except Exception as exc:  # every error is the parent's to see
            _send(parent, Started("", to_wire(exc, 0)))
            return 1
        sweep()  # the parent's files, too, if it was killed
    if not ended:
        leave(0)  # a transfer hangs in a thread, and this process must be gone within a second
    return 0


def _send(parent: socket.socket, started: Any) -> None:
    from ..wire.messages import encode

    with contextlib.suppress(ConnectionError):  # the parent is gone
        parent.sendall(encode(started))


def _serve(start: Any, parent: socket.socket) -> bool:
    from ..dma import FaultRule
    from ..types import Status
    from ..wire.bootstrap import Started
    from .serve import serve

    rules = [FaultRule(**{**rule, "status": Status(rule["status"])}) for rule in start.rules]
    return serve(
        provider=start.provider,
        gpu=start.gpu,
        pci=start.pci,
        rules=rules,
        max_memory=start.max_memory or None,
        ready=lambda endpoint: _send(parent, Started(endpoint, None)),
        watch_fd=parent.fileno(),
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
