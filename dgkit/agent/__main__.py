"""The software DPU that connect() starts: `python -m dgkit.agent FD`.

FD is one end of a socket pair. Its other end lies in the process that started this one: when that
closes it, or dies in any way, this process ends and leaves no file.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Any

__all__ = ["main"]


def main(fd: int) -> int:
    """Reads what to serve, tells where, serves until the socket ends."""
    from ..wire.address import sweep
    from ..wire.bootstrap import Started, decode_start
    from ..wire.error_codec import to_wire
    from .serve import leave

    with socket.socket(fileno=fd) as tie:
        asked = tie.recv(1 << 20)
        if not asked:  # who started this process is gone already
            return 0
        start = decode_start(asked)
        try:
            ended = _serve(start, tie)
        except Exception as exc:  # the process that asked gets it, whatever it is
            _tell(tie, Started("", to_wire(exc, 0)))
            return 1
        sweep()  # that of the process that started this one, if it was killed
    if not ended:
        leave(0)  # a transfer hangs in a thread, and this process must be gone within a second
    return 0


def _tell(tie: socket.socket, started: Any) -> None:
    from ..wire.messages import encode

    with contextlib.suppress(ConnectionError):  # who asked is gone, and nobody is there to tell
        tie.sendall(encode(started))


def _serve(start: Any, tie: socket.socket) -> bool:
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
        ready=lambda endpoint: _tell(tie, Started(endpoint, None)),
        watch_fd=tie.fileno(),
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
