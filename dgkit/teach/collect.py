"""Files of submissions: what nbgrader collects of them, and what is graded."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from nbgrader.exchange.default import ExchangeCollect

from ..files import open_regular


class Collect(ExchangeCollect):  # type: ignore[misc]
    """Collect the regular files of submissions.

    nbgrader's own follows the links in a student's folder with the instructor's rights, to the
    solutions for instance, and a FIFO there ends the collection of all submissions.
    """

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy a folder that its student may be changing."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "submission")
            for path in copy_regular(Path(src), copy, 1000 * self.coursedir.max_dir_size):
                self.log.warning("%s is a link, no regular file or too large: not collected", path)
            super().do_copy(str(copy), dest, log)


def copy_regular(source: Path, target: Path, most: int) -> list[Path]:
    """Copy the regular files with one name of a folder, of at most `most` bytes in all.

    Returns:
        What was left out.
    """
    left: list[Path] = []
    target.mkdir()
    for name, folders, files, fd in os.fwalk(source):
        content: bytes | None
        left += [Path(name, each) for each in folders if not _is_folder(each, fd)]
        for path in (Path(name, each) for each in files):
            try:
                with os.fdopen(open_regular(path, folder=fd), "rb") as file:
                    content = file.read(most + 1)
            except OSError:
                content = None
            if content is None or len(content) > most:
                left.append(path)
                continue
            most -= len(content)
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    return left


def _is_folder(name: str, folder: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def check_regular(submission: Path) -> None:
    """Check that a submission has regular files only, before they are copied to its feedback.

    Raises:
        ValueError: It has a link, or a file of another kind.
    """
    for name, folders, files in os.walk(submission):
        for path in (Path(name, each) for each in ("", *folders, *files)):
            if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
                raise ValueError(f"{path} is a link or no regular file: remove it, grade again")
