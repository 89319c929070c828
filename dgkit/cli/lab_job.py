"""Resources of `dgkit lab`: a software DPU and JupyterLab."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import child

HOST = "127.0.0.1"
_WELCOME = "dgkit=welcome"  # makes dgkit's JupyterLab extension open the welcome notebook
_END_S = 20.0  # JupyterLab waits five seconds for each kernel, one after another


def own_port(uid: int) -> int:
    """Return the first port to try; each of 2,000 users of a machine has ten ports."""
    return 10_000 + uid * 10 % 20_000


@contextlib.contextmanager
def agent() -> Iterator[str]:
    """Start a software DPU, yield its address, and end it; it never outlives this process."""
    from ..session.spawn import SoftwareDpu

    dpu = SoftwareDpu()
    try:
        yield dpu.listen("soft", rules=(), gpu=0, max_memory=None, timeout=None)
    finally:
        dpu.close()


def _argv(folder: Path, port: int, token: str, *, fixed: bool, browser: bool) -> list[str]:
    retries = 0 if fixed else 50
    options = {"ip": HOST, "port": port, "port_retries": retries, "root_dir": folder}
    argv = [f"--ServerApp.{name}={value}" for name, value in options.items()]
    argv += [f"--IdentityProvider.token={token}", "--log-level=WARN"]
    argv += [f"--LabApp.default_url=/lab?{_WELCOME}"] if browser else ["--no-browser"]
    return argv + (["--allow-root"] if os.geteuid() == 0 else [])


class Lab:
    """JupyterLab in a child process, which ends with this one.

    Args:
        folder: Root folder of the server.
        runtime: Jupyter's runtime folder.
        port: First port to try.
        fixed: Whether to fail if `port` is taken, instead of trying others.
        browser: Whether to open a browser.
        environment: Environment variables to add.
        extra: Further arguments for JupyterLab.
    """

    def __init__(
        self,
        folder: Path,
        runtime: Path,
        *,
        port: int,
        fixed: bool,
        browser: bool,
        environment: Mapping[str, str],
        extra: Sequence[str] = (),
    ) -> None:
        self._token = secrets.token_hex(24)
        self._pipe, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, **environment, "JUPYTER_RUNTIME_DIR": str(runtime)}
        self._process = child.start(
            "dgkit.jupyter.lab_server",
            child_end,
            stdout=2,  # its messages belong on stderr
            env=environment,
        )
        argv = _argv(folder, port, self._token, fixed=fixed, browser=browser)
        with contextlib.suppress(ConnectionError):  # the child has ended: ready() raises the error
            self._pipe.send(json.dumps([*argv, *extra]).encode())

    def ready(self) -> dict[str, Any]:
        """Wait until the server accepts connections.

        Returns:
            `url`, with the token, and `port`.

        Raises:
            ChildProcessError: JupyterLab ended first.
            PermissionError: A Jupyter configuration overrides the address or the token.
        """
        try:
            answer = self._pipe.recv(1 << 16)
        except ConnectionError:
            answer = b""
        if not answer:
            code = self._process.wait()
            raise ChildProcessError(f"JupyterLab ended before it was ready (exit status {code})")
        info = json.loads(answer)
        if (info["hostname"], info["sock"], info["token"]) != (HOST, "", self._token):
            raise PermissionError(
                f"a Jupyter configuration file overrides the address ({info['hostname']}) or the "
                "token: `jupyter --paths` lists where to look"
            )
        url = f"{info['url']}lab?token={self._token}&{_WELCOME}"
        return {"url": url, "port": info["port"]}

    def wait(self) -> int:
        """Wait until JupyterLab ends; return its exit status."""
        return self._process.wait()

    def close(self) -> None:
        """End JupyterLab and its kernels; kill it after 20 s. Idempotent."""
        self._pipe.close()
        try:
            self._process.wait(_END_S)
        except BaseException:  # it hangs, or a second Ctrl-C; its kernels end when it is gone
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.close()
