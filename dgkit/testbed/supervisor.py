# SPDX-License-Identifier: Apache-2.0
"""Process that runs the two guests of a testbed, and commands in them for its clients.

It inherits a socket from the process that started it. When the other end is closed, the testbed
ends, unless `detach` was sent before. QEMU ends with this process (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import TestbedError
from ..runtime_folder import runtime_folder
from . import bar_device, images
from .agents import Agent
from .control_socket import DONE, ERROR, ERRORS, OUTPUT, frame, read_line, received, send
from .guest import ADDRESSES, EXCHANGE, NOTEBOOKS, Channel, Guest
from .guest_service import Service
from .images import Image
from .initramfs import CHANNELS, END
from .jupyterlab import LabServer
from .ssh import SshConfig, SshServer

PREFIX = "testbed-"  # of the folders of testbeds in the runtime folder
SOCKET = "control"  # in such a folder
_MESSAGE = 1 << 16
_STATUS = re.compile(rb"(\d{1,3}\n?)?")


class _Scanner:
    """Splits a command's output from the mark that ends it."""

    def __init__(self, mark: str) -> None:
        self._end = END + f"{mark} ".encode()
        self._held = b""
        self.status: int | None = None

    def feed(self, received: bytes) -> bytes:
        """Return the printed bytes; hold back bytes that may be the beginning of the mark."""
        before, found, after = (self._held + received).partition(self._end)
        if found:
            self._held = found + after
            if not _STATUS.fullmatch(after):  # a guest may send anything
                raise ConnectionError
            if after.endswith(b"\n"):
                self.status = int(after)
            return before
        kept = next((n for n in range(len(self._end), 0, -1) if before.endswith(self._end[:n])), 0)
        self._held = before[len(before) - kept :]
        return before[: len(before) - kept]


class _Command:
    """Command that runs in a guest for a client.

    Args:
        channel: Ports of the guest that no other command uses.
        client: Socket that gets the frames; when the client closes it, the command ends.
    """

    def __init__(self, guest: Guest, channel: Channel, client: socket.socket) -> None:
        self._guest = guest
        self._client: socket.socket | None = client
        self._mark = guest.mark()
        self._channel = channel
        self._scanners = {OUTPUT: _Scanner(self._mark), ERRORS: _Scanner(self._mark)}

    def run(self, script: str) -> None:
        """Run a shell script until its end; then kill child processes that still run.

        Raises:
            ConnectionError: The guest ended, or ended the command by no exit status.
        """
        text = base64.b64encode(script.encode()).decode()
        self._channel.output.sendall(f"{self._mark} {text}\n".encode())
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel.output, selectors.EVENT_READ, OUTPUT)
            selector.register(self._channel.errors, selectors.EVENT_READ, ERRORS)
            assert self._client
            selector.register(self._client, selectors.EVENT_READ)
            while any(each.status is None for each in self._scanners.values()):
                for key, _ in selector.select():
                    self._handle(key, selector)
        self._send(DONE, str(self._scanners[OUTPUT].status).encode())

    def _handle(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
        assert isinstance(key.fileobj, socket.socket)
        if key.data is None:  # a client sends nothing after its request
            selector.unregister(key.fileobj)
            self._abandon()
            return
        part = received(key.fileobj, _MESSAGE)
        if not part:
            raise ConnectionError
        if content := self._scanners[key.data].feed(part):
            self._send(key.data, content)

    def _send(self, kind: bytes, content: bytes) -> None:
        try:
            if self._client:
                self._client.sendall(frame(kind, content))
        except OSError:
            self._abandon()

    def _abandon(self) -> None:
        """End the command, because its client has disconnected."""
        if self._client:
            self._client = None
            self._guest.kill(self._mark)


class Supervisor:
    """Guests and listening socket of a testbed."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        wires = socket.socketpair()
        exchange = folder / EXCHANGE
        exchange.mkdir(mode=0o700)
        self.guests: dict[str, Guest] = {}
        ssh = SshConfig(folder) if options["ssh"] else None
        kinds: list[Callable[..., Service]] = []
        if options["agents"]:
            kinds.append(partial(Agent, options["client"], options["path"]))
        if ssh:
            kinds.append(partial(SshServer, ssh))
        if options["lab"]:
            kinds.append(partial(LabServer, options["path"], options["notebooks"]))
        parts = {name: Image.parsed(options["images"][name]) for name in ADDRESSES}
        bar_fd = bar_device.make() if parts["host"].machine in bar_device.MACHINES else None
        for name, wire in zip(ADDRESSES, wires, strict=True):
            image = parts[name]
            memory = options["memory"][name]
            folders = {key: Path(path) for key, path in options["folders"][name].items()}
            folders[EXCHANGE] = exchange
            self.guests[name] = Guest(
                name, image, memory=memory, wire=wire, folders=folders, services=len(kinds),
                bar_fd=bar_fd,
            )  # fmt: skip
        if bar_fd is not None:
            os.close(bar_fd)  # the guests have inherited it
        self._kinds = kinds
        self._services: dict[str, list[Service]] = {name: [] for name in ADDRESSES}
        self._said = threading.Lock()
        self._share = options["share"]
        self._saved = {name: options["folders"][name].get(NOTEBOOKS) for name in ADDRESSES}
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()

    def close(self) -> None:
        """End the guests."""
        for guest in self.guests.values():
            guest.close()

    def serve(self, parent: socket.socket) -> None:
        """Serve clients until a client, or the end of the parent process, ends the testbed."""
        down, up = socket.socketpair()
        with selectors.DefaultSelector() as selector:
            selector.register(parent, selectors.EVENT_READ)
            selector.register(down, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            for guest in self.guests.values():
                selector.register(guest.control, selectors.EVENT_READ, guest)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is down:
                        return
                    if key.fileobj is parent:
                        if read_line(parent) is None:
                            return
                        selector.unregister(parent)
                        _leave_stderr()
                    elif key.data:
                        self._guest_said(key.data, parent, selector)
                    else:
                        client, _ = self._listener.accept()
                        arguments = (client, up)
                        threading.Thread(target=self._client, args=arguments, daemon=True).start()

    def _guest_said(
        self, guest: Guest, parent: socket.socket, selector: selectors.BaseSelector
    ) -> None:
        """Handle a guest's first message (`ready`, `failed`), or its closed port when QEMU ends."""
        text = received(guest.control, _MESSAGE).decode(errors="replace").strip()
        if not text:
            selector.unregister(guest.control)
            guest.ended()
        starting = guest.state == "starting"
        if text and not starting:
            return
        guest.state = text or "ended"
        if starting:
            words = {"guest": guest.name, "state": guest.state, "console": guest.console()}
            self._tell(parent, words)
        if guest.state == "ready":
            said = partial(self._tell, parent)
            self._services[guest.name] = [kind(guest, self._run, said) for kind in self._kinds]
            for service in self._services[guest.name]:
                service.start()

    def _tell(self, parent: socket.socket, message: dict[str, Any]) -> None:
        """Send a message to the process that started the testbed, if it is still connected."""
        with self._said, contextlib.suppress(OSError):
            send(parent, message)

    def _client(self, client: socket.socket, up: socket.socket) -> None:
        """Answer one request."""
        with client, contextlib.suppress(OSError):
            request = read_line(client) or {}
            do = request.get("do")
            if do == "status":
                send(client, self.status())
            elif do == "console":
                send(client, {"text": self.guests[request["guest"]].console()})
            elif do == "run":
                self._run(client, self.guests[request["guest"]], request["script"])
            elif do == "down":
                up.sendall(b"down")
                client.recv(1)  # returns when this process ends

    def _run(self, client: socket.socket, guest: Guest, script: str) -> None:
        try:
            channel = guest.free.get_nowait()
        except queue.Empty:
            text = f"the {guest.name} guest runs as many commands as it can: {CHANNELS}"
            client.sendall(frame(ERROR, text.encode()))
            return
        try:
            _Command(guest, channel, client).run(script)
        except OSError:
            last = (guest.console().splitlines() or ["nothing"])[-1]
            text = (
                f"the {guest.name} guest ended, or gave no exit status; the last line of its "
                f"console: {last}"
            )
            client.sendall(frame(ERROR, text.encode()))
        else:
            guest.free.put(channel)

    def status(self) -> dict[str, Any]:
        """Return the state of the testbed."""
        guests = {}
        for name, guest in self.guests.items():
            guests[name] = {
                "machine": guest.image.machine,
                "address": ADDRESSES[name],
                "state": guest.state,
                "runs_by": "KVM" if guest.image.kvm else "emulation",
                "pid": guest.pid,
            }
            if saved := self._saved[name]:
                guests[name]["saved"] = saved
            for service in self._services[name]:
                guests[name] |= service.status()
        return {"pid": os.getpid(), "share": self._share, "guests": guests}


def _leave_stderr() -> None:
    """Close stderr so that a parent reading the pipe sees end-of-file."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def _end(_: int, __: FrameType | None) -> None:
    sys.exit(0)


def main(fd: int) -> int:
    """Run a testbed. Its options arrive on the socket `fd`, and its progress is sent there."""
    signal.signal(signal.SIGTERM, _end)
    with socket.socket(fileno=fd) as parent, contextlib.ExitStack() as last_to_first:
        options = read_line(parent)
        if options is None:
            return 1
        last_to_first.enter_context(images.in_use())
        try:
            name = options["name"]
            folder = last_to_first.enter_context(runtime_folder(PREFIX, name))
            supervisor = Supervisor(folder, options)
        except FileExistsError:
            send(parent, {"failed": "a testbed is already up: `dgkit testbed down` ends it"})
            return 1
        except (OSError, TestbedError, subprocess.CalledProcessError) as exc:
            send(parent, {"failed": f"the guests cannot start: {exc}"})
            return 1
        last_to_first.callback(supervisor.close)
        send(parent, {"folder": str(folder)})
        supervisor.serve(parent)
    return 0
