# SPDX-License-Identifier: Apache-2.0
"""Subprocesses with a time limit, killed together with their process session."""

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
from pathlib import Path

from .reader import Reading

COMMAND_S = 5.0  # time limit of one command
_KEPT_BYTES = 4 << 20  # of each output stream
_MAX_BYTES = 64 << 20  # of an output stream; a command that prints more is killed
_POLL_S = 0.05  # interval between checks for the exit of the process
_KILL_S = 0.2  # time for a killed process to exit
# Directories of DOCA, MLNX_OFED and the CUDA toolkit, which a user's PATH may lack.
_DIRECTORIES = (
    *("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/cuda/bin"),
    *("/opt/mellanox/doca/tools", "/opt/mellanox/ethtool/sbin"),
)


class Commands:
    """Runs commands in the C locale, each in a new session, without input or terminal."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._change = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._busy = 0  # commands that are starting, running or being reaped
        self._closed = False

    def run(self, command: Sequence[str], until: float, *, limit_s: float | None = None) -> Reading:
        """Run a command; kill its session at `until` (time.monotonic()), or after `limit_s`
        seconds, by default 5.

        A descendant that called setsid() survives: to kill it, this process would have to be the
        subreaper of the whole program.

        Returns:
            Exit status and output, at most 4 MiB of each stream.

        Raises:
            OSError: The command could not be started.
        """
        # only absolute directories of PATH: the current directory is not trusted
        parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
        path = os.pathsep.join([*(part for part in parts if part.startswith("/")), *_DIRECTORIES])
        found = shutil.which(command[0], path=path)
        if found is None:
            name = command[0]
            if "/" in name and os.path.isfile(name):  # noqa: PTH113 (this never raises)
                return _denied(name)
            return Reading(fault="absent", why=f"there is no command {name}")
        now = time.monotonic()
        limit = min(COMMAND_S if limit_s is None else limit_s, until - now)
        if limit <= 0:
            return _late(command[0], 0.0)
        try:
            with self._running_process([found, *command[1:]], path) as process:
                outputs, ended = _gather(process, now + limit)
        except PermissionError:  # a file system mounted noexec
            return _denied(found)
        if not ended or self._closed:  # timed out, or killed by close()
            return _late(command[0], min(limit, time.monotonic() - now))
        if max(outputs.sizes) >= _MAX_BYTES:
            why = f"{command[0]} printed more than {_MAX_BYTES >> 20} MiB"
            return Reading(fault="failed", why=why)
        stdout, stderr = (bytes(part).decode("utf-8", "replace") for part in outputs.kept)
        return Reading(text=stdout, said=stderr, code=process.returncode)

    def close(self) -> None:
        """Kill running commands and wait up to 1 s for them; later commands are killed at once."""
        if os.getpid() != self._pid:  # a fork: these are the parent's children
            return
        with self._change:
            self._closed = True
            for process in self._running:
                _kill(process)
            self._change.wait_for(lambda: not self._busy, timeout=1.0)

    @contextlib.contextmanager
    def _running_process(self, command: list[str], path: str) -> Iterator[subprocess.Popen[bytes]]:
        with self._change:
            self._busy += 1
        process = None
        try:
            process = self._start(command, path)
            yield process
        finally:
            if process is not None:
                with self._change:  # once reaped, its PID may be reused
                    self._running.discard(process)
                    _kill(process)
                for pipe in (process.stdout, process.stderr):
                    if pipe is not None:
                        pipe.close()
                try:
                    process.wait(_KILL_S)
                except subprocess.TimeoutExpired:
                    with contextlib.suppress(RuntimeError):
                        threading.Thread(
                            target=process.wait, name="dgkit-doctor-reap", daemon=True
                        ).start()
            with self._change:
                self._busy -= 1
                self._change.notify_all()

    def _start(self, command: list[str], path: str) -> subprocess.Popen[bytes]:
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
    """Standard output and standard error: the first bytes, and the total size."""

    def __init__(self) -> None:
        self.kept = (bytearray(), bytearray())
        self.sizes = [0, 0]

    def add(self, which: int, part: bytes) -> None:
        self.sizes[which] += len(part)
        self.kept[which].extend(part[: _KEPT_BYTES - len(self.kept[which])])


def _gather(process: subprocess.Popen[bytes], until: float) -> tuple[_Outputs, bool]:
    """Read the output until the process exits or prints more than _MAX_BYTES; False on time-out.

    Do not wait for end of file: a child of the command may keep the pipes open.
    """
    outputs = _Outputs()
    with selectors.DefaultSelector() as selector:
        for which, pipe in enumerate((process.stdout, process.stderr)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, which)
        while selector.get_map() and max(outputs.sizes) < _MAX_BYTES:
            exited, left = _has_exited(process), until - time.monotonic()
            if left <= 0:
                return outputs, exited
            ready = selector.select(0 if exited else min(left, _POLL_S))
            if exited and not ready:
                return outputs, True
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                outputs.add(key.data, part)
                if not part:
                    selector.unregister(key.fileobj)
    return outputs, max(outputs.sizes) >= _MAX_BYTES or _wait(process, until)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has exited, without reaping it, so that its PID stays valid."""
    with contextlib.suppress(ChildProcessError):  # reaped already: SIGCHLD is ignored
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, flags) is not None
    return True


def _wait(process: subprocess.Popen[bytes], until: float) -> bool:
    """Wait until a process that has closed its outputs exits; return False on time-out."""
    pause = 0.0005  # it usually exits at once
    while not _has_exited(process):
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group. A setuid-root process cannot be killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _denied(name: str) -> Reading:
    return Reading(fault="denied", why=f"this user may not run {Path(name).name}")


def _late(name: str, limit: float) -> Reading:
    why = f"{Path(name).name} gave no answer within {limit:.1f} s"
    return Reading(fault="late", why=why)
