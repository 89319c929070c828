# SPDX-License-Identifier: Apache-2.0
"""Addresses, ipc:///PATH and tcp://HOST:PORT?key=HEX, and socket files in the runtime folder.

The address of an agent on a slow machine also has &heartbeat=SECONDS at its end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import select
import socket
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NativeError
from ..runtime_folder import runtime_dir
from .host_id import process_state
from .keys import check_public

# Either side of a tcp:// connection ends it after this many seconds without a message. The agent's
# address carries the agent's value, so both sides use the same one.
HEARTBEAT_S = 0.6
HEARTBEAT_MAX_S = 30.0

_PATH_MAX = 107  # bytes: sun_path (unix(7)) without its terminating null byte
_BINDING_S = 10.0
_LOCK_S = 2.0  # an agent holds the lock for milliseconds
_CRED = struct.Struct("3i")  # unix(7): process, user, group
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Address:
    """Address of an agent: the ZeroMQ endpoint and, for tcp://, its public key in hex.

    `heartbeat` is how many seconds either side of a tcp:// connection may be silent.
    """

    endpoint: str
    key: str = ""
    heartbeat: float = HEARTBEAT_S

    @property
    def tcp(self) -> bool:
        """True if connections use the network, which requires keys."""
        return self.endpoint.startswith("tcp://")

    @property
    def path(self) -> Path | None:
        """The socket file of an ipc:// address, else None."""
        return None if self.tcp else Path(self.endpoint.removeprefix("ipc://"))

    def __str__(self) -> str:
        if not self.key:
            return self.endpoint
        slow = "" if self.heartbeat == HEARTBEAT_S else f"&heartbeat={self.heartbeat:g}"
        return f"{self.endpoint}?key={self.key}{slow}"


def parse(text: str) -> Address:
    """Parse an address.

    Raises:
        ValueError: Not an address; the message says what is wrong.
        TypeError: Not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"an address must be a str, not {type(text).__name__}")
    if text.startswith("ipc://"):
        path = text.removeprefix("ipc://")
        if not path.startswith("/"):
            raise ValueError(f"{text!r}: ipc:// requires an absolute path")
        if any(char < " " or char == "\x7f" for char in path):
            raise ValueError(f"{text!r}: the path has control characters")
        length = len(os.fsencode(path))
        if length > _PATH_MAX:
            raise ValueError(f"{text!r}: the path has {length} bytes; the limit is {_PATH_MAX}")
        return Address(text)
    match = re.fullmatch(
        r"(tcp://(\[[^\]]+\]|[^:/?]+):(\d{1,5}))(?:\?key=([^&]*)(?:&heartbeat=([0-9.]{1,8}))?)?",
        text,
    )
    if not match or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not an address: use ipc:///PATH or tcp://HOST:PORT?key=KEY")
    key = check_public(match[4]) if match[4] else ""
    return Address(match[1], key, check_heartbeat(match[5]) if match[5] else HEARTBEAT_S)


def check_heartbeat(seconds: str | float) -> float:
    """Return the heartbeat in seconds, within its bounds.

    Raises:
        ValueError: It is not a number, or is out of bounds.
    """
    try:
        value = float(seconds)
    except ValueError:
        value = -1.0
    if not HEARTBEAT_S <= value <= HEARTBEAT_MAX_S:
        raise ValueError(
            f"heartbeat={seconds}: it must be {HEARTBEAT_S} to {HEARTBEAT_MAX_S:g} seconds"
        )
    return value


def fresh() -> Address:
    """Return an unused socket address in the runtime folder; sweep() reads the pid in its name."""
    names = (runtime_dir() / f"agent-{os.getpid()}-{number}.sock" for number in _serial)
    path = next(path for path in names if not path.is_symlink() and not path.exists())
    return parse(f"ipc://{path}")


def mover_path(path: Path) -> Path:
    """Return the socket of the mover of an agent, for NCCL's plugin (native/nccl/agent.c)."""
    return path.with_name(f"{path.name}.mover")


@contextlib.contextmanager
def claimed(path: Path, stop_fds: Sequence[int] = ()) -> Iterator[None]:
    """Lock the folder of `path` while the caller binds there; no live socket may be at `path`.

    libzmq removes an existing file when it binds, so two agents could bind at one path.

    Args:
        path: The socket file.
        stop_fds: Descriptors that are readable when the caller is to end; negative ones are
            ignored.

    Raises:
        NativeError: The path holds another kind of file, or a socket that is in use, or another
            program keeps the folder locked, or the caller is to end.
    """
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise NativeError(exc.errno, f"cannot listen at {path}: {exc.strerror}") from exc
    try:
        _lock(fd, path, stop_fds)
        _check_unused(path)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: Path, stop_fds: Sequence[int]) -> None:
    """Lock the folder of `path`; raise if another program keeps it locked."""
    deadline = time.monotonic() + _LOCK_S
    stop = select.poll()
    for stop_fd in stop_fds:
        if stop_fd >= 0:
            stop.register(stop_fd, select.POLLIN)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise NativeError(
                    errno.EAGAIN,
                    f"cannot listen at {path}: another program keeps {path.parent} locked "
                    "(flock(2)); use a folder of your own",
                ) from exc
        if stop.poll(10):
            raise NativeError(errno.ECANCELED, f"ended while {path.parent} was locked (flock(2))")


def _check_unused(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise NativeError(
            errno.EEXIST,
            f"cannot listen at {path}: that file is not a socket, so it is not replaced",
        )
    if _listener(path):
        raise NativeError(
            errno.EADDRINUSE,
            f"cannot listen at {path}: another agent listens there; stop it or use another path",
        )


def sweep() -> list[Path]:
    """Remove socket files that killed agents and exporters left behind; return their paths."""
    removed = []
    for path in runtime_dir().glob("*-*.sock"):
        with contextlib.suppress(FileNotFoundError):  # removed by its agent or by another sweep
            if _is_past_binding(path) and not _listener(path):
                path.unlink()
                mover_path(path).unlink(missing_ok=True)
                removed.append(path)
    return removed


def remove_of(pid: int) -> None:
    """Remove the socket files of a process that was killed or exits without closing them."""
    for path in runtime_dir().glob(f"*-{pid}-*.sock"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if _listener(path) in (0, pid):  # any other pid: same pid in another container
                path.unlink()
                mover_path(path).unlink(missing_ok=True)


def _is_past_binding(path: Path) -> bool:
    """Return whether the socket's owner must have called listen() by now, or has ended.

    A socket that is bound and does not listen yet refuses connections as a dead one does.
    """
    kind, pid, *_ = path.name.split("-")
    if kind == "share":  # it gets this name when it listens (native/src/share/server.c)
        return True
    gone = pid.isdigit() and process_state(int(pid)) == "gone"
    return gone or time.time() - path.stat().st_mtime > _BINDING_S


def _listener(path: Path) -> int:
    """Return the pid that listens at `path`; 0 if none, -1 if it cannot be determined."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):  # agent, exporter
        with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as probe:
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                return 0
            except OSError as exc:
                if exc.errno != errno.EPROTOTYPE:  # EACCES; EAGAIN: its backlog is full
                    return -1
                continue
            cred = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
            return int(_CRED.unpack(cred)[0]) or -1
    return -1
