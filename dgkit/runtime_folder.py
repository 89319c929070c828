"""Folders in the runtime folder that are removed with their process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .dma import runtime_dir

__all__ = ["runtime_folder"]


@contextlib.contextmanager
def runtime_folder(prefix: str, name: str | None = None) -> Iterator[Path]:
    """Create a folder for this user only, and remove it at the end.

    It is locked (flock(2)) while its process lives, so the folders of killed processes can be
    recognized and are removed here.

    Args:
        prefix: First part of its name, and of the names of the folders that are looked through.
        name: Its name, which begins with `prefix`. Default: a new one.

    Raises:
        FileExistsError: A living process has the folder of that name.
    """
    parent = runtime_dir()
    with contextlib.ExitStack() as last_to_first:
        with _locked(parent):
            for path in parent.glob(f"{prefix}*"):
                _remove_old(path)
            folder = _create(parent, prefix, name)
            last_to_first.enter_context(_locked(folder))
        last_to_first.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _create(parent: Path, prefix: str, name: str | None) -> Path:
    if name is None:
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


def _remove_old(path: Path) -> None:
    in_use_or_gone = contextlib.suppress(OSError)
    with in_use_or_gone, _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
        shutil.rmtree(path)
