# SPDX-License-Identifier: Apache-2.0
"""CURVE key pairs and the list of clients that an agent allows, for tcp:// addresses.

`Listener._verdict` (listener.py) decides with this list which client may connect.

A pair is two files in the keys folder ($XDG_CONFIG_HOME/dgkit/keys, else ~/.config/dgkit/keys,
mode 0700): NAME.secret (mode 0600) and NAME.public. The file `allowed` has one line for each
allowed client: the public key, a space, a name. Keys are written as 64 hex digits, which need no
quoting in a shell or a URL.

Each change holds a lock (flock on the file `.lock`) and replaces a file as a whole, so that
concurrent changes are all kept, and a full disk or a killed process leaves the old file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import AccessDenied, PeerRefused
from ..files import (
    check_own_folder,
    is_own,
    make_user_folder,
    read_regular,
    replace_file,
    sync_folder,
    user_folder,
    write_new,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_NAME = 64  # characters
_MAX_BYTES = 4096  # of the file of a key
_HEX = re.compile(r"[0-9a-f]{64}")
_LOCK = ".lock"
_LOCK_S = 30.0  # maximum wait for another process that changes keys
_SETTLED_NS = 2_000_000_000  # changes within one tick of a file's clock have equal times


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Key pair of one side. `public` and `secret` are 64 hex digits."""

    name: str
    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """Stored public key. `own`: its secret key is stored as well. `allowed`: agents accept it."""

    name: str
    public: str
    own: bool
    allowed: bool


def folder() -> Path:
    """Return the keys folder, creating it if necessary.

    Raises:
        NativeError: It cannot be created.
        AccessDenied: Other users can write to it.
    """
    return make_user_folder("CONFIG", "keys")


def folder_path() -> str:
    """Return the keys folder, which may not exist."""
    return str(user_folder("CONFIG", "keys"))


def make(name: str = "default") -> KeyPair:
    """Create a key pair and store it. Replace a public key whose secret is lost.

    Raises:
        FileExistsError: A pair of that name exists.
        ValueError: The name is not valid.
    """
    import zmq
    from zmq.utils import z85

    if not _NAME.fullmatch(name):
        raise ValueError(f"key name {name!r}: 1 to 64 letters, digits, dots, dashes, underscores")
    public, secret = (z85.decode(key).hex() for key in zmq.curve_keypair())
    with _locked() as where:
        path = where / f"{name}.secret"
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        part = path.with_name(f".{path.name}.part")
        part.unlink(missing_ok=True)  # left by a process that was killed
        write_new(part, f"{secret}\n".encode(), 0o600)
        try:
            replace_file(path.with_suffix(".public"), f"{public}\n".encode(), 0o644)
            part.replace(path)  # last: the secret is what makes it a pair
        finally:
            part.unlink(missing_ok=True)
        sync_folder(where)
    return KeyPair(name, public, secret)


def load(name: str = "default") -> KeyPair:
    """Return a stored key pair.

    Raises:
        PeerRefused: No pair has that name.
        AccessDenied: Other users can read the secret key.
        ValueError: The name is not valid, or a file is damaged.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"key name {name!r}: 1 to 64 letters, digits, dots, dashes, underscores")
    path = folder() / f"{name}.secret"
    if not path.exists():
        raise PeerRefused(
            f"tcp:// requires a key pair on both sides and {path} does not exist: "
            f"{_stored_hint()}make one with `dgkit keys make {name}`, and allow the other side's "
            "key with `dgkit keys allow KEY`"
        )
    stat = path.stat()
    if not is_own(stat, 0o077):
        mode = f"{stat.st_mode & 0o777:03o}"
        raise AccessDenied(
            f"other users can read the secret key {path} (mode {mode}, owner {stat.st_uid}): "
            f"`chmod 600 {path}`; if it may have been read, make a new pair"
        )
    secret = _read_key(path)
    public = _public_of(secret)
    if public != _stored_public(path):
        raise ValueError(
            f"{path.with_suffix('.public')} is not the public key of {path}: delete it, and the "
            "right one is computed from the secret"
        )
    return KeyPair(name, public, secret)


def _stored_hint() -> str:
    """Return a hint that names the stored pairs, or "" if there are none."""
    names = sorted(path.stem for path in folder().glob("*.secret"))
    if not names:
        return ""
    stored = ", ".join(names)
    return f'select one with `--keys NAME` (keys="NAME" in Python; stored: {stored}), or '


def discard(name: str) -> None:
    """Remove a key pair, and the folder with its lock if nothing else is in it. Idempotent."""
    if not Path(folder_path()).is_dir():
        return
    with _locked() as where:
        for kind in ("secret", "public"):
            Path(where, f"{name}.{kind}").unlink(missing_ok=True)
        if [path.name for path in where.iterdir()] == [_LOCK]:
            Path(where, _LOCK).unlink()
            with contextlib.suppress(OSError):  # another process has begun to use it
                where.rmdir()
                where.parent.rmdir()


def allow(public: str, name: str = "") -> None:
    """Allow the client with this public key. An agent reads the list at every handshake."""
    key = check_public(public)
    if not name.isprintable() or len(name) > _MAX_NAME:
        raise ValueError(f"key name {name!r:.80}: at most {_MAX_NAME} printable characters")
    with _locked() as where:
        if key not in allowed():
            _write_allowed(where, [*_lines(where), f"{key} {name}\n"])


def remove(public: str) -> str:
    """Remove a key from the list of allowed clients; connected clients stay connected.

    Returns:
        The key's name.

    Raises:
        ValueError: The key is not in the list.
    """
    key = check_public(public)
    with _locked() as where:
        clients = allowed()
        if key not in clients:
            raise ValueError(f"{key} is not an allowed key: `dgkit keys list` shows them")
        others = [line for line in _lines(where) if line.partition(" ")[0].strip() != key]
        _write_allowed(where, others)
    return clients[key]


def allowed() -> dict[str, str]:
    """Return the allowed public keys and their names."""
    return AllowedKeys().read()


class AllowedKeys:
    """List of allowed clients, whose file is read again after it has changed. Not thread-safe.

    Each read opens the file, because only then does a network file system fetch its current state.
    """

    def __init__(self) -> None:
        self._state: tuple[int, ...] | None = None
        self._keys: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return the allowed public keys and their names.

        Raises:
            AccessDenied: Other users can write to the file or its folder.
            ValueError: The file is not text.
        """
        where = folder_path()
        path = f"{where}/allowed"
        try:
            check_own_folder(where)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a FIFO
        except FileNotFoundError:
            return {}
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, fd)
            stat = os.fstat(fd)
            if stat.st_mode & 0o022:
                raise AccessDenied(f"{path} is writable by other users: `chmod 600 {path}`")
            state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if state != self._state:
                self._state = None
                try:
                    self._keys = _keys_in(fd)
                except UnicodeDecodeError as exc:
                    raise ValueError(f"{path} is not UTF-8 text: fix or remove it") from exc
                if abs(time.time_ns() - stat.st_ctime_ns) > _SETTLED_NS:
                    self._state = state
        return self._keys


def _keys_in(fd: int) -> dict[str, str]:
    with open(fd, encoding="utf-8", closefd=False) as file:
        rows = [line.partition(" ") for line in file.read().splitlines()]
    return {key: name.strip() for key, _, name in rows if _HEX.fullmatch(key)}


def listing() -> list[KeyInfo]:
    """Return the stored pairs by name, then the allowed keys of other sides."""
    clients = allowed()
    own = [(path.stem, _stored_public(path)) for path in sorted(folder().glob("*.secret"))]
    rows = [KeyInfo(name, public, True, public in clients) for name, public in own]
    own_keys = {public for _, public in own}
    return rows + [
        KeyInfo(name, key, False, True) for key, name in clients.items() if key not in own_keys
    ]


def check_public(public: str) -> str:
    """Return a public key in lower case; raise ValueError if it is not one."""
    key = public.strip().lower()
    if not _HEX.fullmatch(key):
        raise ValueError(f"a public key has 64 hex digits; this is {public!r:.80}")
    return key


def _read_key(path: Path) -> str:
    text = read_regular(path, _MAX_BYTES).decode("ascii", "replace").strip()
    if not _HEX.fullmatch(text):
        raise ValueError(f"{path} is not a key (64 hex digits): make a new pair")
    return text


def _stored_public(path: Path) -> str:
    """Return the public key of the pair whose secret is at `path`; computed if not stored."""
    public = path.with_suffix(".public")
    return _read_key(public) if public.exists() else _public_of(_read_key(path))


def _public_of(secret: str) -> str:
    import zmq
    from zmq.utils import z85

    return z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex()


def _lines(where: Path) -> list[str]:
    """Return the lines of the list of allowed clients, each with a newline."""
    path = where / "allowed"
    if not path.exists():
        return []
    return [f"{line}\n" for line in path.read_text(encoding="utf-8").splitlines()]


def _write_allowed(where: Path, lines: list[str]) -> None:
    replace_file(where / "allowed", "".join(lines).encode(), 0o600)


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    """Hold the lock for changes to the keys folder, and yield the folder.

    Raises:
        AccessDenied: Another process holds the lock for more than 30 s.
    """
    where, deadline = folder(), time.monotonic() + _LOCK_S
    while (fd := _try_lock(where / _LOCK)) is None:
        if time.monotonic() > deadline:
            raise AccessDenied(
                f"another process holds {where / _LOCK} for more than {_LOCK_S:g} s: end "
                f"it (`fuser {where / _LOCK}` shows it), and try again"
            )
        time.sleep(0.005)
    try:
        yield where
    finally:
        os.close(fd)


def _try_lock(path: Path) -> int | None:
    """Return the locked file; None if another process holds it, or discard() has removed it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # with its folder
        folder()
        return None
    try:
        os.fchmod(fd, 0o600)  # the umask may have removed bits
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None
