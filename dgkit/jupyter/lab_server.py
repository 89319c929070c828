# SPDX-License-Identifier: Apache-2.0
"""JupyterLab as a child process of `dgkit lab`: `python -c ... FD`.

FD is one end of a socket pair. Through it this process receives the arguments of JupyterLab,
including the token, since every user of a machine can read a command line (proc(5)). Once the
server runs, it sends back the server's information as JSON. When the other end closes, even because
its process died, this process ends its kernels and itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from typing import Any


def main(fd: int) -> int:
    """Serve until the socket closes or JupyterLab is shut down from its menu."""
    with socket.socket(fileno=fd) as parent:
        arguments = parent.recv(1 << 20)
        if not arguments:  # the parent has already ended
            return 0
        running: list[Any] = []
        threading.Thread(target=_end_with, args=(parent, running), daemon=True).start()

        from jupyterlab.labapp import LabApp

        server = LabApp.initialize_server(argv=json.loads(arguments))

        def report_ready() -> None:
            running.append(server)
            parent.send(json.dumps(server.server_info()).encode())

        server.io_loop.add_callback(report_ready)
        server.start()
    return 0


def _end_with(parent: socket.socket, running: list[Any]) -> None:
    """Wait until the parent's end closes; end the server, or the process if there is none yet."""
    with contextlib.suppress(OSError):  # a reset is an end, too
        parent.recv(1)
    if running:
        running[0].io_loop.add_callback(running[0].stop)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
