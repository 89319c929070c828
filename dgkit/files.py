# SPDX-License-Identifier: Apache-2.0
"""Descriptors, and files that other users may have prepared: owner, mode, links, atomic writes."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from itertools import count, starmap
from pathlib import Path

from .errors import AccessDenied, LimitReached, NativeError

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal


class Fd:
    """File descriptor that `opener(*args)` returns, closed with the last reference to this object.

    No interruption leaks it, since each step is one of C: extend() calls the opener and stores the
    result; epoll.fromfd(), which takes any descriptor, closes it, and without a ResourceWarning.
    """

    __slots__ = ("_owner",)

    def __init__(self, opener: Callable[..., int], *args: object) -> None:
        self._owner: list[select.epoll] = []
        self._owner.extend(map(select.epoll.fromfd, starmap(opener, (args,))))

    @property
    def number(self) -> int:
        """The descriptor."""
        return self._owner[0].fileno()

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        self._owner.clear()


def is_own(found: os.stat_result, others: int = 0o022) -> bool:
    """Return whether a file is this user's and gives others none of the permissions `others`."""
    return found.st_uid == os.geteuid() and not found.st_mode & others


def check_own_folder(path: str) -> None:
    """Check a folder whose files are executed or trusted as this user's.

    Raises:
        AccessDenied: It belongs to another user, or other users can write to it.
    """
    found = os.stat(path)  # noqa: PTH116 - at each handshake: pathlib takes five times as long
    if not is_own(found):
        raise AccessDenied(f"{path} is writable by other users, or not yours: `chmod 700 {path}`")


_DEFAULTS = {"CACHE": ".cache", "CONFIG": ".config", "DATA": ".local/share"}


def user_folder(kind: Literal["CACHE", "CONFIG", "DATA"], name: str = "") -> Path:
    """Return dgkit's folder below $XDG_<kind>_HOME, or a path in it; it may not exist."""
    home = os.environ.get(f"XDG_{kind}_HOME") or Path.home() / _DEFAULTS[kind]
    return Path(home, "dgkit", name)


def make_user_folder(kind: Literal["CACHE", "CONFIG", "DATA"], name: str = "") -> Path:
    """Create a user_folder() for this user only, if it is missing, and check it.

    Raises:
        NativeError: It cannot be created.
        AccessDenied: It belongs to another user, or other users can write to it.
    """
    path = user_folder(kind, name)
    try:
        _make_folder(path)
    except OSError as exc:
        raise NativeError(
            exc.errno or errno.EIO,
            f"cannot create the folder {path} (set XDG_{kind}_HOME to a folder that you may write "
            f"to): {exc.strerror}",
        ) from exc
    check_own_folder(str(path))
    return path


def _make_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700, whatever the umask is.

    Source: XDG base directory specification, "Referencing this specification".
    """
    if path.is_dir():
        return
    _make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process was faster, or it is no folder
        if path.is_dir():
            return
        raise
    path.chmod(0o700)


def check_descriptors(what: str, needed: int) -> None:
    """Check that `needed` file descriptors are free, for what `what` names.

    If libzmq reached the limit later, it would abort the process (epoll.cpp).

    Raises:
        LimitReached: Fewer are left.
    """
    taken: list[Fd] = []
    try:
        while len(taken) < needed:
            taken.append(Fd(os.eventfd, 0, os.EFD_CLOEXEC))
    except OSError as exc:
        raise LimitReached(
            exc.errno,
            f"{what} needs {needed} file descriptors and {len(taken)} are left: close some, or "
            "raise the limit (`ulimit -n`)",
        ) from exc
    finally:
        taken.clear()


@contextlib.contextmanager
def filling(folder: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a folder to fill; its content then moves to `folder`: all of it or, on an error, none.

    Args:
        folder: It is created if it is missing, and must have no file of the same name.
        mode: Mode of a created folder.
    """
    import shutil

    is_new = not folder.exists()
    part = folder / ".part"  # on the same disk, so that no rename fails for want of space
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
        part.mkdir(mode=mode)
        yield part
        for path in list(part.iterdir()):
            path.rename(folder / path.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):  # it has its files
                folder.rmdir()


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the path of a file to an OSError without one, as read() and write() raise."""
    try:
        yield
    except OSError as exc:
        if exc.filename is not None or exc.errno is None:
            raise
        raise OSError(exc.errno, exc.strerror, str(path)) from exc


def open_regular(path: Path, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """Open a regular file with one name; return its file descriptor.

    Symbolic links and further hard links may lead to a file outside the folder, and a FIFO
    would block.

    Args:
        path: The file; with `folder`, only its name is used.
        flags: Of open(2).
        folder: File descriptor of the file's folder, if others can exchange that.

    Raises:
        OSError: It cannot be opened, or is no such file; nothing was changed.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path if folder is None else path.name, flags, 0o666, dir_fd=folder)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file with one name: remove it", str(path))
    return fd


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file with one name, of at most `most` bytes.

    Raises:
        OSError: It cannot be read, or is no such file.
        ValueError: It is larger.
    """
    return _read_limited_fd(path, open_regular(path), most)


def read_limited(path: Path, most: int) -> bytes:
    """Return the content of a regular file, which may be a link, of at most `most` bytes.

    Raises:
        OSError: It cannot be read, or is no regular file: a FIFO would block.
        ValueError: It is larger.
    """
    return _read_limited_fd(path, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), most)


def _read_limited_fd(path: Path, fd: int, most: int) -> bytes:
    with named(path), os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} has more than {most} bytes, the limit")
    return content


def write_new(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write and sync a file that must not exist; leave no file if it fails.

    Args:
        path: The file.
        content: What to write.
        mode: Its mode, whatever the umask is. Default: 0666 less the umask.

    Raises:
        FileExistsError: The file exists.
        OSError: It cannot be written; the error names the file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666 if mode is None else 0o600)
    try:
        with named(path), os.fdopen(fd, "wb") as out:
            if mode is not None:
                os.fchmod(fd, mode)
            out.write(content)
            out.flush()
            os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file atomically: after an error or a crash it has the old content or the new one.

    The content is written to .NAME.part, then renamed.

    Args:
        content: What to write.
        mode: Its mode, whatever the umask is. Default: 0666 less the umask.

    Raises:
        OSError: It cannot be written, or is a symbolic link, a device or the like, which is not
            replaced; the error names `path`.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(errno.EINVAL, "not a regular file; it is not replaced")
        part.unlink(missing_ok=True)  # left by a process that was killed
        write_new(part, content, mode)
        part.replace(path)
        sync_folder(path.parent)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, str(path)) from exc
    finally:
        part.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder that others have filled, however deep it is and whatever its modes are.

    Content of inner folders is moved up, which needs neither long paths nor recursion, as
    shutil.rmtree() does. Links are not followed.

    Raises:
        OSError: Something cannot be removed; all else is.
    """
    failed: OSError | None = None
    prefix = f".{os.urandom(8).hex()}."  # no name in it that a guest or a student has chosen
    numbers = count()
    waiting = [*folder.iterdir()]
    while waiting:
        path = waiting.pop()
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                path.unlink()
                continue
            path.chmod(0o700)
            for inner in list(path.iterdir()):
                with contextlib.suppress(FileNotFoundError):  # removed by another process
                    if stat.S_ISDIR(inner.lstat().st_mode):
                        inner.chmod(0o700)  # rename(2) writes to it
                    waiting.append(inner.rename(folder / f"{prefix}{next(numbers)}"))
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError as exc:
            failed = failed or exc
    if failed:
        raise failed
    folder.rmdir()


def sync_folder(path: Path) -> None:
    """Sync a folder to disk: only then does a rename survive a crash (fsync(2))."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def beside_core(name: str) -> Path:
    """Return the path of a file or folder that is installed next to the C core."""
    import importlib.util

    core = importlib.util.find_spec("dgkit._native")
    sibling = core.origin if core and core.origin else __file__
    return Path(sibling).resolve().parent / name


def installed_softdoca() -> Path:
    """Return the folder of softdoca (lib, include, samples)."""
    return beside_core("_softdoca")
