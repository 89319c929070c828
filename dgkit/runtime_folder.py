# SPDX-License-Identifier: Apache-2.0
"""The runtime folder, and subfolders with a lock.

A subfolder is removed when its process exits; after a kill, by the next process that makes a
subfolder with the same prefix.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .errors import NativeError, PeerRefused
from .files import is_own, remove_folder


def runtime_dir() -> Path:
    """Return the folder for sockets, created if missing: $XDG_RUNTIME_DIR/dgkit or /tmp/dgkit-UID.

    The C core puts its sockets into the same folder (dg_runtime_dir() of dgkit.h).

    Raises:
        PeerRefused: It is not owned by this user, or its mode is not 0700; or XDG_RUNTIME_DIR
            belongs to another user, who could replace it.
        NativeError: It cannot be created, or XDG_RUNTIME_DIR is not UTF-8.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    path = Path(f"/tmp/dgkit-{os.geteuid()}")
    if base.startswith("/"):
        _check_text(base)
        _check_owner(base)
        path = Path(f"{base}/dgkit")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except FileExistsError:  # it is not a folder
        found = path.lstat()
    except OSError as exc:
        raise NativeError(
            exc.errno or errno.EIO,
            f"cannot create the runtime folder {path} (set XDG_RUNTIME_DIR to a folder that you "
            f"own): {exc.strerror}",
        ) from exc
    if not stat.S_ISDIR(found.st_mode) or not is_own(found, 0o077):
        raise PeerRefused(
            f"the runtime folder {path} must be a folder of this user with mode 0700: fix it, or "
            "set XDG_RUNTIME_DIR"
        )
    return path


def _check_text(base: str) -> None:
    """Refuse a folder that no address of a socket can name: they are UTF-8 in messages."""
    try:
        base.encode()
    except UnicodeEncodeError:
        raise NativeError(
            errno.EILSEQ,
            f"XDG_RUNTIME_DIR is {os.fsencode(base)!r}, which is not UTF-8: set it to another "
            "folder of this user, or unset it",
        ) from None


def _check_owner(base: str) -> None:
    """Refuse a folder of another user than this one and root."""
    try:
        owner = Path(base).stat().st_uid
    except OSError:
        return  # runtime_dir() says why it is not usable
    if owner not in (0, os.geteuid()):
        why = f"XDG_RUNTIME_DIR is {base}, which belongs to user {owner}"
        raise PeerRefused(f"{why}: set it to a folder of this user, or unset it")


@contextlib.contextmanager
def runtime_folder(prefix: str, name: str | None = None) -> Iterator[Path]:
    """Create a folder for this user only, and remove it at the end.

    The folder is locked (flock(2)) while its process lives. Folders of killed processes are
    recognized by the missing lock and are removed here.

    Args:
        prefix: First part of the name, and of the names of the folders checked for removal.
        name: Name that begins with `prefix`. Default: a new one.

    Raises:
        FileExistsError: A running process uses the folder of that name.
    """
    parent = runtime_dir()
    with contextlib.ExitStack() as last_to_first:
        with _locked(parent):
            for path in parent.glob(f"{prefix}*"):
                _remove_old(path)
            folder = _create(parent, prefix, name)
            last_to_first.enter_context(_locked(folder))
        last_to_first.callback(_remove, folder)
        yield folder


def _create(parent: Path, prefix: str, name: str | None) -> Path:
    if name is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    (parent / name).mkdir(mode=0o700)
    return parent / name


@contextlib.contextmanager
def _locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        remove_folder(folder)


def _remove_old(path: Path) -> None:
    in_use_or_gone = contextlib.suppress(OSError)
    with in_use_or_gone, _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
        remove_folder(path)
