"""Addresses, ipc:///path/of/a/socket and tcp://host:port?key=HEX, and the sockets on file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..dma import runtime_dir
from ..errors import NativeError
from .host_id import process_state
from .keys import check_public

__all__ = ["Address", "claimed", "fresh", "parse", "remove_of", "sweep"]

_PATH_MAX = 107  # bytes: sun_path of unix(7), less its final zero
_BINDING_S = 10.0
_CRED = struct.Struct("3i")  # unix(7): process, user, group
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Address:
    """Where an agent listens. `endpoint` is ZeroMQ's; `key` is the agent's public key, for tcp."""

    endpoint: str
    key: str = ""

    @property
    def tcp(self) -> bool:
        """Whether it goes over the network, and so needs keys."""
        return self.endpoint.startswith("tcp://")

    @property
    def path(self) -> Path | None:
        """The socket's file, for ipc."""
        return None if self.tcp else Path(self.endpoint.removeprefix("ipc://"))

    def __str__(self) -> str:
        return f"{self.endpoint}?key={self.key}" if self.key else self.endpoint


def parse(text: str) -> Address:
    """Reads an address. ValueError says what is wrong with it."""
    if not isinstance(text, str):
        raise TypeError(f"an address is a str, not {type(text).__name__}")
    if text.startswith("ipc://"):
        path = text.removeprefix("ipc://")
        if not path.startswith("/"):
            raise ValueError(f"{text!r}: ipc:// needs the absolute path of a socket")
        if len(os.fsencode(path)) > _PATH_MAX:
            raise ValueError(f"{text!r}: a socket's path has {_PATH_MAX} bytes at most (unix(7))")
        return Address(text)
    match = re.fullmatch(r"(tcp://(\[[^\]]+\]|[^:/?]+):(\d{1,5}))(?:\?key=(.*))?", text)
    if not match or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is no address: ipc:///PATH or tcp://HOST:PORT?key=KEY")
    return Address(match[1], check_public(match[4]) if match[4] else "")


def fresh() -> Address:
    """A new socket name in the runtime folder; the process id in it serves sweep()."""
    names = (runtime_dir() / f"agent-{os.getpid()}-{number}.sock" for number in _serial)
    path = next(path for path in names if not path.is_symlink() and not path.exists())
    return parse(f"ipc://{path}")


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """For binding at `path`, which would remove what is there: only a dead socket may be.

    Its folder is locked meanwhile (flock(2)), so that of two agents one is the first. NativeError.
    """
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise NativeError(exc.errno, f"cannot listen at {path}: {exc.strerror}") from exc
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _refuse_what_lives(path)
        yield
    finally:
        os.close(fd)


def _refuse_what_lives(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise NativeError(
            errno.EEXIST, f"cannot listen at {path}: what is there is no socket, and is not removed"
        )
    if _listener(path):
        raise NativeError(
            errno.EADDRINUSE,
            f"cannot listen at {path}: another agent listens there; stop it or take another",
        )


def sweep() -> list[Path]:
    """Removes the sockets, of agents and of exporters, of processes that were killed."""
    removed = []
    for path in runtime_dir().glob("*-*.sock"):
        with contextlib.suppress(FileNotFoundError):  # its agent ended, or another swept it first
            if _is_old(path) and not _listener(path):
                path.unlink()
                removed.append(path)
    return removed


def remove_of(pid: int) -> None:
    """Removes the sockets of this process, which ends without closing them, or of a killed one."""
    for path in runtime_dir().glob(f"*-{pid}-*.sock"):
        with contextlib.suppress(FileNotFoundError):  # it was closed just now
            if _listener(path) in (0, pid):  # elsewhere, as in a container, is another of that id
                path.unlink()


def _is_old(path: Path) -> bool:
    """Past the moment between bind() and listen(), in which a new socket refuses, too."""
    kind, pid, *_ = path.name.split("-")
    if kind == "share":  # it gets this name when it listens (native/src/share/server.c)
        return True
    gone = pid.isdigit() and process_state(int(pid)) == "gone"
    return gone or time.time() - path.stat().st_mtime > _BINDING_S


def _listener(path: Path) -> int:
    """The process that listens there; 0: none; -1: one that cannot be seen from here."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):  # an agent's; an exporter's door
        with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as probe:
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                return 0
            except OSError as exc:
                if exc.errno != errno.EPROTOTYPE:  # EACCES; EAGAIN: more knock than it takes
                    return -1
                continue
            cred = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
            return int(_CRED.unpack(cred)[0]) or -1
    return -1
