# SPDX-License-Identifier: Apache-2.0
"""The software DPU that connect() starts: `python -m dgkit.agent FD`.

FD is one end of a socket pair. The process that started this one has the other end: when it closes
that end, or dies in any way, this process ends and leaves no file. This process also watches the
parent process itself, since a child forked without Python's functions keeps the other end open.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any


def main(fd: int) -> int:
    """Receive the configuration, send the address, serve until end-of-file; return the exit code.

    Args:
        fd: This process's end of the socket pair.
    """
    from ..wire.address import sweep
    from ..wire.error_codec import to_wire
    from ..wire.essential import leave
    from ..wire.messages import Started, decode_start

    with socket.socket(fileno=fd) as parent:
        request = parent.recv(1 << 20)
        if not request:  # the parent is already gone
            return 0
        start = decode_start(request)
        waiting = [parent]  # for one answer, which it reads whatever comes behind it
        try:
            with _end_of(parent) as end:
                ended = _serve(start, waiting, end.fileno())
        except Exception as exc:  # every error until it is ready is reported to the parent
            _report_ready(waiting, Started(endpoint="", failed=to_wire(exc, 0)))
            return 1
        sweep()  # also the parent's files, if it was killed
    if not ended:
        leave(0)  # a transfer hangs in a thread, but this process must end within a second
    return 0


def _report_ready(waiting: list[socket.socket], started: Any) -> None:
    from ..wire.messages import encode

    with contextlib.suppress(IndexError, ConnectionError):  # it has its answer, or is gone
        waiting.pop().sendall(encode(started))


@contextlib.contextmanager
def _end_of(parent: socket.socket) -> Iterator[select.epoll]:
    """Yield an epoll that is readable once the parent has closed its end or has ended."""
    # The process that made the socket pair (unix(7), SO_PEERCRED).
    pid, _, _ = struct.unpack("3i", parent.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    with select.epoll() as end, contextlib.ExitStack() as undo:
        end.register(parent, select.EPOLLIN)
        with contextlib.suppress(OSError):  # old kernel, or the parent has ended: see below
            process = os.pidfd_open(pid)
            undo.callback(os.close, process)
            end.register(process, select.EPOLLIN)
        if os.getppid() != pid:  # getppid() changes when the parent ends
            parent.shutdown(socket.SHUT_RDWR)
        yield end


def _serve(start: Any, waiting: list[socket.socket], end: int) -> bool:
    """Serve one client, its parent, with the options of its Start, until `end` is readable."""
    from ..dma import FaultRule
    from ..types import Status
    from ..wire.messages import Started
    from .agent_process import serve
    from .serve_options import default_memory

    rules = [FaultRule(**{**rule, "status": Status(rule["status"])}) for rule in start.rules]
    return serve(
        provider=start.provider,
        gpu=start.gpu,
        pci=start.pci,
        rdma=start.rdma,
        rules=rules,
        max_memory=start.max_memory or None,
        max_client_memory=start.max_memory or default_memory(),  # there is one client
        ready=lambda endpoint: _report_ready(waiting, Started(endpoint=endpoint, failed=None)),
        watch_fd=end,
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
