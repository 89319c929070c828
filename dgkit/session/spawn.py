"""The software DPU as a second process.

The two are tied by a socket pair: when this process closes its end or dies, however it dies, the
other reads end-of-file and goes. It runs in a process session of its own, so a Ctrl-C in the
terminal of a notebook does not reach it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PeerLost, PeerTimeout

if TYPE_CHECKING:
    from ..dma import FaultRule

__all__ = ["SoftwareDpu"]

# Without -m, so that no file of the working folder is taken for a module of that name; the search
# path is this process's, so both sides run the same dgkit.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv.pop().split(':'); "
    "from dgkit.agent.__main__ import main; sys.exit(main(int(sys.argv[1])))"
)
_END_S = 1.0


class SoftwareDpu:
    """Starts at once; `listen()` waits until it is ready. close() ends it."""

    def __init__(self) -> None:
        if not sys.executable:
            raise PeerLost("this Python does not know its own program, so it cannot start another")
        self._tie, theirs = socket.socketpair()
        search = ":".join(path or str(Path.cwd()) for path in sys.path)
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(fd), search],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def listen(
        self,
        provider: str,
        *,
        rules: Sequence[FaultRule],
        gpu: int,
        max_memory: int | None,
        pci: str | None = None,
        timeout: float,
    ) -> str:
        """Tells it what to be; returns its address. What it could not do is raised here."""
        from dataclasses import asdict

        from ..wire.bootstrap import Start, decode_started
        from ..wire.error_codec import to_exception
        from ..wire.messages import encode

        plain = [{**asdict(rule), "status": int(rule.status)} for rule in rules]
        self._tie.settimeout(timeout)
        try:
            self._tie.sendall(encode(Start(provider, plain, max_memory or 0, gpu, pci)))
            answer = self._tie.recv(1 << 16)
        except TimeoutError:
            more = ": a GPU's driver may take long, connect(timeout=60)" * (provider == "cuda")
            raise PeerTimeout(f"the software DPU was not ready within {timeout} s{more}") from None
        except ConnectionError:
            answer = b""
        if not answer:
            code = self._process.wait(_END_S)
            raise PeerLost(f"the software DPU ended before it was ready (exit status {code})")
        started = decode_started(answer)
        if started.failed is not None:
            raise to_exception(started.failed)
        return started.endpoint

    def abandon(self) -> None:
        """In a forked child: the process is the parent's, and so must the tie be."""
        self._tie.close()
        self._process.returncode = 0

    def close(self) -> None:
        """Ends it, by force if a second does not do. Again: nothing."""
        self._tie.close()
        if self._process.returncode is None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:  # it is stopped, or hangs
                self._process.kill()
                self._process.wait()
        from ..wire.address import remove_of

        remove_of(self._process.pid)  # it has left none, unless it was killed
