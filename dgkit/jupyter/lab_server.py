"""JupyterLab as a child of `dgkit lab`: `python -c ... FD`.

FD is one end of a socket pair. Over it come the arguments of JupyterLab, the token among them: a
command line can be read by every user of the machine (proc(5)). Back goes what the server says of
itself, once it serves. When the other end closes, or its process dies in any way, this one ends
its kernels and itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from typing import Any

__all__ = ["main"]


def main(fd: int) -> int:
    """Serves until the socket ends, or somebody shuts JupyterLab down in its menu."""
    with socket.socket(fileno=fd) as tie:
        asked = tie.recv(1 << 20)
        if not asked:  # who started this process is gone already
            return 0
        serving: list[Any] = []
        threading.Thread(target=_end_with, args=(tie, serving), daemon=True).start()

        from jupyterlab.labapp import LabApp

        server = LabApp.initialize_server(argv=json.loads(asked))

        def tell() -> None:
            serving.append(server)
            tie.send(json.dumps(server.server_info()).encode())

        server.io_loop.add_callback(tell)
        server.start()
    return 0


def _end_with(tie: socket.socket, serving: list[Any]) -> None:
    """When the other end of the tie closes, ends the server, or the process if there is none."""
    tie.recv(1)
    if serving:
        serving[0].io_loop.add_callback(serving[0].stop)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
