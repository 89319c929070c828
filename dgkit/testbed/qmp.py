# SPDX-License-Identifier: Apache-2.0
"""Forwarded ports of a guest, set by QEMU's monitor.

Source: QEMU's docs/interop/qmp-spec.rst, and `hostfwd_add` in its hmp-commands.hx.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import IO, Any

from ..errors import TestbedError

_TRIES = 20
_ANSWER_S = 30.0


class Monitor:
    """QEMU's monitor in control mode."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._stream: IO[str] | None = None
        self._lock = threading.Lock()

    def forward(self, network: str, guest: str, count: int) -> list[int]:
        """Forward free TCP ports of 127.0.0.1 to the same ports of a guest.

        Args:
            network: Id of the guest's user network.
            guest: The guest's address there.
            count: Number of ports.

        Returns:
            The port numbers.

        Raises:
            TestbedError: QEMU refuses.
            OSError: QEMU has ended, or does not answer.
        """
        with self._lock:
            return [self._forward_one(network, guest) for _ in range(count)]

    def _forward_one(self, network: str, guest: str) -> int:
        said = ""
        for _ in range(_TRIES):
            port = _free_port()
            line = f"hostfwd_add {network} tcp:127.0.0.1:{port}-{guest}:{port}"
            said = str(self._execute("human-monitor-command", {"command-line": line}))
            if not said.strip():
                return port  # if QEMU refuses, another process took the port in the meantime
        raise TestbedError(f"QEMU forwards no port: {said.strip()}")

    def _execute(self, command: str, arguments: dict[str, Any]) -> Any:
        if not self._stream:
            self._link.settimeout(_ANSWER_S)
            self._stream = self._link.makefile("rw")
            self._stream.readline()  # the greeting
            _execute(self._stream, "qmp_capabilities", {})
        return _execute(self._stream, command, arguments)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _execute(stream: IO[str], command: str, arguments: dict[str, Any]) -> Any:
    stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
    stream.flush()
    for line in stream:  # events, and then the answer
        answer = json.loads(line)
        if "error" in answer:
            raise TestbedError(f"QEMU's monitor refuses {command}: {answer['error'].get('desc')}")
        if "return" in answer:
            return answer["return"]
    raise ConnectionError("QEMU has ended")
