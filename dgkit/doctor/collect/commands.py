"""Commands with a limit: whatever they do, they end in time, with all of their session."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

from .reading import Reading

__all__ = ["COMMAND_S", "Commands"]

COMMAND_S = 5.0  # for one command
_KEPT = 4 << 20  # bytes of each output that are kept
_WITHOUT_END = 64 << 20  # bytes after which a command is ended
_TICK_S = 0.05  # between two looks at whether it has ended
_DYING_S = 0.2  # for a killed command to be gone
# Where what DOCA, MLNX_OFED and the CUDA toolkit install lies, for who has no such PATH.
_PLACES = (
    *("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/cuda/bin"),
    *("/opt/mellanox/doca/tools", "/opt/mellanox/ethtool/sbin"),
)


class Commands:
    """Each runs in a session of its own, in the C locale, with no input and no terminal."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._change = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._busy = 0  # those that begin, run, or are just ending
        self._closed = False

    def run(self, command: Sequence[str], until: float) -> Reading:
        """What it printed, at most 4 MiB; ended with its whole session at `until` or after 5 s.

        A child that has made a session of its own (setsid) lives on: to catch it, this process
        would have to take in all orphans of the program it is in.

        OSError: it could not be started.
        """
        path = os.pathsep.join([*_own_path(), *_PLACES])
        found = shutil.which(command[0], path=path)
        if found is None:
            return _not_found(command[0])
        now = time.monotonic()
        limit = min(COMMAND_S, until - now)
        if limit <= 0:
            return _late(command[0], 0.0)
        try:
            with self._begun([found, *command[1:]], path) as process:
                outputs, ended = _gather(process, now + limit)
        except PermissionError:  # of a file system where nothing may be run
            return _denied(found)
        if not ended or self._closed:  # or was ended by close()
            return _late(command[0], min(limit, time.monotonic() - now))
        if max(outputs.sizes) >= _WITHOUT_END:
            why = f"{command[0]} printed more than {_WITHOUT_END >> 20} MiB"
            return Reading(fault="failed", why=why)
        text, said = (bytes(one).decode("utf-8", "replace") for one in outputs.kept)
        return Reading(text=text, said=said, code=process.returncode)

    def close(self) -> None:
        """Ends what runs, and waits a moment for it to be gone. None begins after it."""
        if os.getpid() != self._pid:  # a fork: they are not its own
            return
        with self._change:
            self._closed = True
            for process in self._running:
                _kill(process)
            self._change.wait_for(lambda: not self._busy, timeout=1.0)

    @contextlib.contextmanager
    def _begun(self, command: list[str], path: str) -> Iterator[subprocess.Popen[bytes]]:
        with self._change:
            self._busy += 1
        process = None
        try:
            process = self._begin(command, path)
            yield process
        finally:
            if process is not None:
                with self._change:  # after this its number may be another's
                    self._running.discard(process)
                    _kill(process)
                _bury(process)
            with self._change:
                self._busy -= 1
                self._change.notify_all()

    def _begin(self, command: list[str], path: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": "C", "PATH": path},
            start_new_session=True,
        )  # fmt: skip
        with self._change:
            self._running.add(process)
            if self._closed:
                _kill(process)
        return process


class _Outputs:
    """Of standard output and standard error: the beginning, and how much there was."""

    def __init__(self) -> None:
        self.kept = (bytearray(), bytearray())
        self.sizes = [0, 0]

    def add(self, which: int, part: bytes) -> None:
        self.sizes[which] += len(part)
        self.kept[which].extend(part[: _KEPT - len(self.kept[which])])


def _gather(process: subprocess.Popen[bytes], until: float) -> tuple[_Outputs, bool]:
    """Reads until it ends, or prints without end; False if neither was so in time.

    A child of the command may hold the pipes open for ever, so their end is not waited for.
    """
    outputs = _Outputs()
    with selectors.DefaultSelector() as waits:
        for which, pipe in enumerate((process.stdout, process.stderr)):
            assert pipe is not None
            waits.register(pipe, selectors.EVENT_READ, which)
        while waits.get_map() and max(outputs.sizes) < _WITHOUT_END:
            over, left = _has_ended(process), until - time.monotonic()
            if left <= 0:
                return outputs, over
            ready = waits.select(0 if over else min(left, _TICK_S))
            if over and not ready:
                return outputs, True
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                outputs.add(key.data, part)
                if not part:
                    waits.unregister(key.fileobj)
    return outputs, max(outputs.sizes) >= _WITHOUT_END or _ends(process, until)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has, without taking it away: its number stays its own."""
    with contextlib.suppress(ChildProcessError):  # taken away already: SIGCHLD is ignored here
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, flags) is not None
    return True


def _ends(process: subprocess.Popen[bytes], until: float) -> bool:
    """Whether it ends in time, having closed its outputs: as a rule it does at once."""
    pause = 0.0005
    while not _has_ended(process):
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _TICK_S)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and all of its group. A command that has become root cannot be."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _bury(process: subprocess.Popen[bytes]) -> None:
    """Leaves no zombie and no pipe. One that hangs in the kernel is waited for by a thread."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=process.wait, name="dgkit-doctor-bury", daemon=True).start()


def _own_path() -> list[str]:
    """Without the current folder, which may hold anything."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [part for part in parts if part.startswith("/")]


def _not_found(name: str) -> Reading:
    if "/" in name and os.path.isfile(name):  # noqa: PTH113 (this never raises)
        return _denied(name)
    return Reading(fault="absent", why=f"there is no command {name}")


def _denied(name: str) -> Reading:
    return Reading(fault="denied", why=f"this user may not run {name}")


def _late(name: str, limit: float) -> Reading:
    return Reading(fault="late", why=f"{name} gave no answer within {limit:.1f} s")
