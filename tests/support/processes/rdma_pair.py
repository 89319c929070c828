# SPDX-License-Identifier: Apache-2.0
"""A program of rdma-core twice, as server and as client, with the adapter in software."""

import contextlib
import re
import socket
import subprocess
from pathlib import Path

from . import cli


def listens(port):
    """Return whether a process listens on a port, of TCP or of the adapter (proc(5)).

    State 0A is LISTEN, and the flag 10000 of a UNIX socket that it listens.
    """
    tables = (Path("/proc/net", name).read_text() for name in ("tcp", "tcp6", "unix"))
    seen = rf":{port:04X} \S+ 0A | 00010000 .*@dgkit-cm-.*-{port}-"
    return any(re.search(seen, table) for table in tables)


@contextlib.contextmanager
def pair(
    folder, *program, options=(), server_options=(), arguments=(), ports=("-p", "-p"),
    address="127.0.0.1",
):  # fmt: skip
    """Start a program as server and as client, the client with options of `dgkit mlx5 run`.

    arguments: more of the client's. ports: the program's options for the port, of the server and of
    the client. address: the server's, for the client.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    near, far = ([*program, name, port] for name in ports)
    started = cli.command("mlx5", "run", *server_options, "--", *near)
    pipes = {
        "env": cli.environment(folder), "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
        "text": True,
    }  # fmt: skip
    with subprocess.Popen(started, **pipes) as server:
        try:
            cli.until(lambda: listens(port) or server.poll() is not None)
            started = cli.command("mlx5", "run", *options, "--", *far, *arguments, address)
            with subprocess.Popen(started, **pipes) as client:
                try:
                    yield server, client
                finally:
                    client.kill()
        finally:
            server.kill()
