# SPDX-License-Identifier: Apache-2.0
"""Servers that run in a guest from its boot to its end, at ports that QEMU forwards."""

from __future__ import annotations

import shlex
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import TestbedError
from ..wire.essential import essential_thread
from .control_socket import DONE, ERROR, ERRORS, OUTPUT, frames
from .guest import EXCHANGE, MANAGEMENT, Guest
from .wheels import BYTECODE, SITE

# Environment of the programs in a guest: dgkit's keys are in /run/agent/dgkit/keys.
_HOME = "HOME=/tmp XDG_RUNTIME_DIR=/run XDG_CONFIG_HOME=/run/agent"
_KEPT = 4000  # number of last characters of a server's output that are kept


def _cause(status: int, printed: str) -> str:
    """Return how a server ended, by its shell's exit status, and what it had printed."""
    known = {128 + each: f"killed by {each.name}" for each in signal.Signals}
    return f"{known.get(status, f'exit status {status}')}{printed and f': {printed}'}"


def shell_environment(guest: str, folder: str) -> str:
    """Return shell commands that set search paths, for programs and dgkit, and the current folder.

    Args:
        guest: host or dpu.
        folder: Current folder in the host guest, which sees this machine's files.
    """
    path = "/usr/sbin:/usr/bin:/sbin:/bin:/run/applets"
    site = "export PYTHONPATH=/run/site PYTHONPYCACHEPREFIX=/run/pycache\n"
    site += f"[ -d {SITE}/{BYTECODE} ] && export PYTHONPYCACHEPREFIX={SITE}/{BYTECODE}\n"
    if guest == "host":
        path, site = f"{Path(sys.executable).parent}:{path}", _bytecode()
    else:
        folder = "/run/share"
    where = f"cd {shlex.quote(folder)} 2>/dev/null || cd /"
    pair = f"export DGKIT_GUEST={guest} DGKIT_EXCHANGE=/run/{EXCHANGE}"
    return f"export PATH={shlex.quote(path)} {_HOME}\n{pair}\n{site}{where}\n"


def _bytecode() -> str:
    """Return the shell command by which the host guest's Python finds this machine's .pyc files.

    None is needed where they are beside the sources. Without them every process compiles dgkit and
    NumPy again: half a second on this machine, several on an emulated processor.
    """
    prefix = sys.pycache_prefix
    return f"export PYTHONPYCACHEPREFIX={shlex.quote(prefix)}\n" if prefix else ""


def sees_edits(guest: str) -> str:
    """Return shell commands for a program that starts others, such as a shell: exec it next.

    While it runs, the host guest looks up the names of this machine's files anew every two seconds,
    as initramfs.py does when a command starts.
    """
    if guest != "host":
        return ""
    drop = "echo 2 > /proc/sys/vm/drop_caches"
    every = f"while {drop} && sleep 2 && kill -0 $$; do :; done"
    return f"({every}) </dev/null >/dev/null 2>&1 &\n"


class Service(ABC):
    """Server in a guest.

    Args:
        guest: Guest in which it runs.
        run: Function that runs a script in the guest, and sends its frames to a socket.
        said: Called with a message for the process that started the testbed.

    Attributes:
        key: Its name in the testbed's status.
        title: Its name in messages.
        ports: Number of TCP ports that it needs.
        address: Address or command by which this machine reaches it; "" until it is ready.
        why: Why it has ended; "" until then.
    """

    key: str
    title: str
    ports = 1

    def __init__(
        self,
        guest: Guest,
        run: Callable[[socket.socket, Guest, str], None],
        said: Callable[[dict[str, Any]], None],
    ) -> None:
        self.address = ""
        self.why = ""
        self.guest, self._run, self._said = guest, run, said

    @abstractmethod
    def script(self, ports: list[int]) -> str:
        """Return the shell script that starts the server."""

    @abstractmethod
    def listens(self, ports: list[int], printed: str) -> str:
        """Return the address once the output shows that the server is ready; until then ""."""

    def start(self) -> None:
        """Start the server; call `said` when it is ready or has failed before that."""
        essential_thread(f"dgkit-{self.key}", self._serve).start()

    def status(self) -> dict[str, str]:
        """Return {key: address}, or {key_ended: reason} once it has ended."""
        return {f"{self.key}_ended": self.why} if self.why else {self.key: self.address}

    @property
    def python(self) -> str:
        """Python of the guest, as a word of a shell script."""
        return shlex.quote(sys.executable) if self.guest.name == "host" else "python3"

    def _serve(self) -> None:
        try:
            assert self.guest.monitor
            self._follow(self.guest.monitor.forward("management", MANAGEMENT, self.ports))
        except (OSError, TestbedError) as exc:
            self._end(str(exc))

    def _follow(self, ports: list[int]) -> None:
        """Run the server until its end."""
        ours, theirs = socket.socketpair()

        def run() -> None:
            with theirs:
                self._run(theirs, self.guest, self.script(ports))

        essential_thread(f"dgkit-{self.key}-run", run).start()
        texts = {OUTPUT: "", ERRORS: ""}
        with ours:
            for kind, content in frames(ours):
                if kind in texts:
                    texts[kind] = (texts[kind] + content.decode(errors="replace"))[-_KEPT:]
                if not self.address and (address := self.listens(ports, texts[OUTPUT])):
                    self.address = address
                    self._said({"guest": self.guest.name, "serves": self.title})
                if kind == ERROR:
                    self._end(content.decode())
                elif kind == DONE:
                    self._end(_cause(int(content), texts[ERRORS].strip()))

    def _end(self, why: str) -> None:
        self.why = why
        if not self.address:
            text = f"the {self.title} in the {self.guest.name} guest ended: {why}"
            self._said({"failed": text})
