# SPDX-License-Identifier: Apache-2.0
"""The software DPU as a second process.

A socket pair ties the two together: when this process closes its end, or dies in any way, the other
process reads end-of-file and exits. It runs in its own process session, so Ctrl-C in a notebook's
terminal does not reach it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import child
from ..errors import PeerLost, PeerTimeout

if TYPE_CHECKING:
    from ..dma import FaultRule

_END_S = 1.0
_START_S = 30.0  # a busy machine, or a GPU's driver, may take long to start
_LEAST_S = 0.5  # CPU time in _START_S of a process that makes progress


class SoftwareDpu:
    """Process of a software DPU, started on creation; listen() waits until it is ready."""

    def __init__(self) -> None:
        if not sys.executable:
            raise PeerLost(
                "cannot start a software DPU: sys.executable, the path of Python, is empty"
            )
        self._socket, theirs = socket.socketpair()
        self._process = child.start("dgkit.agent.__main__", theirs)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def listen(
        self,
        provider: str,
        *,
        rules: Sequence[FaultRule],
        gpu: int,
        max_memory: int | None,
        pci: str | None = None,
        rdma: str | None = None,
        timeout: float | None,
    ) -> str:
        """Configure the DPU and return its address. Arguments as for dgkit.connect().

        An error in the other process, such as DeviceUnavailable, is raised in this one.

        Raises:
            PeerTimeout: It was not ready within `timeout` seconds, or did nothing for 30.
            PeerLost: It ended before it was ready.
        """
        from dataclasses import asdict

        from ..wire.error_codec import to_exception
        from ..wire.messages import Start, decode_started, encode

        plain = [{**asdict(rule), "status": int(rule.status)} for rule in rules]
        start = Start(
            provider=provider, rules=plain, max_memory=max_memory or 0, gpu=gpu, pci=pci, rdma=rdma
        )  # fmt: skip
        try:
            self._socket.sendall(encode(start))
            answer = self._answer(timeout)
        except TimeoutError as error:
            hint = ": a GPU's driver may take long, connect(timeout=60)" * (provider == "cuda")
            raise PeerTimeout(f"the software DPU was not ready within {error} s{hint}") from None
        except ConnectionError:
            answer = b""
        if not answer:
            code = self._process.wait(_END_S)
            raise PeerLost(f"the software DPU ended before it was ready (exit status {code})")
        started = decode_started(answer)
        if started.failed is not None:
            raise to_exception(started.failed)
        return started.endpoint

    def _answer(self, timeout: float | None) -> bytes:
        """Return the answer; without a limit, wait while the process uses the CPU.

        Raises:
            TimeoutError: There was none; the argument is the limit in seconds.
        """
        self._socket.settimeout(_START_S if timeout is None else timeout)
        used = 0.0
        while True:
            try:
                return self._socket.recv(1 << 16)
            except TimeoutError:
                now = _cpu_s(self.pid)
                if timeout is not None or now < used + _LEAST_S:
                    raise TimeoutError(self._socket.gettimeout()) from None
                used = now

    def abandon(self) -> None:
        """Detach in a forked child: the parent owns the process and the socket."""
        self._socket.close()
        self._process.returncode = 0

    def close(self) -> None:
        """End the process, by SIGKILL if it has not ended within a second. Idempotent."""
        self._socket.close()
        if self._process.returncode is None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:  # stopped, or hung
                self._process.kill()
                self._process.wait()
        from ..wire.address import remove_of

        remove_of(self._process.pid)  # its socket files, left behind only if it was killed


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)
