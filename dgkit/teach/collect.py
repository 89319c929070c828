# SPDX-License-Identifier: Apache-2.0
"""Submissions: whose they are, what nbgrader collects of their files, and what is graded."""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import stat
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default import ExchangeCollect
from traitlets.config.loader import PyFileConfigLoader

from ..files import open_regular
from . import student_notebook

# Of nbgrader's exchange, which releases no feedback at all if one submission lacks them.
_TIME, _SECRET = "timestamp.txt", "submission_secret.txt"
_MOST_FILES, _MOST_LEVELS = 1000, 16  # of files and folders, and of folders in each other


class Collect(ExchangeCollect):  # type: ignore[misc]
    """Collect the regular files that students handed in under their own names.

    nbgrader's own follows the links in a student's folder with the instructor's rights, to the
    solutions for instance, only warns of a folder in the name of another student, and ends the
    collection of all submissions at one that cannot be copied or whose time cannot be read.
    """

    check_owner: bool
    inbound_path: str
    src_records: list[Any]

    def _path_to_record(self, path: str) -> dict[str, Any]:
        """Return the record of a folder; without a student if its name has no time."""
        try:
            record: dict[str, Any] = super()._path_to_record(path)
        except (ValueError, OverflowError):
            self.log.warning("%s: its name has no time: not collected", path)
            return {"username": "", "filename": Path(path).name, "timestamp": datetime.min}
        return record

    def _sort_by_timestamp(self, records: list[Any]) -> list[Any]:
        """Sort submissions of one student; another's must not be newer than the student's own."""
        own = [record for record in records if self._submitter(record) == record["username"]]
        latest: list[Any] = super()._sort_by_timestamp(own or records)
        return latest

    def _submitter(self, record: Any) -> str:
        """Return who submitted a folder: its owner if `check_owner`, else the user it names."""
        if not self.check_owner:
            return str(record["username"])
        try:
            return pwd.getpwuid(Path(self.inbound_path, record["filename"]).lstat().st_uid).pw_name
        except (KeyError, OSError):
            return "an unknown user"

    def copy_files(self) -> None:
        """Copy each submission; warn about those that cannot be copied."""
        inbound = Path(self.inbound_path)
        records = [record for record in self.src_records if record["username"]]
        self.src_records = []
        for record in records:
            source, owner = inbound / record["filename"], self._submitter(record)
            try:
                student_notebook.check_name(record["username"])
            except ValueError as error:
                self.log.warning("%s: %s: not collected", source, error)
                continue
            if owner != record["username"]:
                self.log.warning(
                    "%s is owned by %s, not by %s: not collected (where the students of a server "
                    "have one account: c.ExchangeCollect.check_owner = False)",
                    source, owner, record["username"],
                )  # fmt: skip
                continue
            with tempfile.TemporaryDirectory() as folder:
                # Before nbgrader removes what it has of the student.
                try:
                    most = 1000 * self.coursedir.max_dir_size
                    left = copy_regular(source, copy := Path(folder, record["filename"]), most)
                    # Not the student's, which may be another time, or none at all.
                    (copy / _TIME).write_text(f"{record['timestamp']} UTC\n")
                except (OSError, ValueError) as error:
                    self.log.warning("%s: %s: not collected", source, error)
                    continue
                for path in left:
                    self.log.warning(
                        "%s is a link, no regular file or too large: not collected", path
                    )
                self._note_time(source, record["timestamp"])
                self.inbound_path, self.src_records = folder, [record]
                checks, self.check_owner = self.check_owner, False  # the copy is this user's
                super().copy_files()
                self.inbound_path, self.check_owner = str(inbound), checks

    def _note_time(self, source: Path, claimed: datetime) -> None:
        """Warn of a folder that was changed later than it says; nobody can set back that time."""
        changed = datetime.fromtimestamp(source.lstat().st_ctime, timezone.utc).replace(tzinfo=None)
        if changed - claimed > timedelta(minutes=10):
            self.log.warning(
                "%s says %s UTC, and was changed or copied at %s UTC",
                source, claimed, f"{changed:%Y-%m-%d %H:%M}",
            )  # fmt: skip


def check_registered(course: Path, students: Sequence[str]) -> None:
    """Check that students are in a course's gradebook.

    Raises:
        ValueError: One is not.
        FileNotFoundError: The folder has no course.
    """
    root = course.resolve()
    if not (file := root / "nbgrader_config.py").is_file():
        raise FileNotFoundError(errno.ENOENT, "no course is here: there is no such file", str(file))
    config = PyFileConfigLoader(str(file)).load_config()
    with Gradebook(CourseDirectory(config=config, root=str(root)).db_url) as gradebook:
        known = {student.id for student in gradebook.students}
    for student in students:
        if student not in known:
            raise ValueError(
                f"{student!r} is not in the gradebook: run `nbgrader db student add {student}` in "
                f"{course} if the name is right"
            )


def copy_regular(source: Path, target: Path, most: int) -> list[Path]:
    """Copy a folder's regular files that have one link; a student may be changing the folder.

    Args:
        source: The folder.
        target: Folder to make.
        most: Bytes of all files together.

    Returns:
        What was left out.

    Raises:
        ValueError: It has too many files and folders, or too many of them in each other.
        OSError: It cannot be read.
    """
    left: list[Path] = []
    errors: list[OSError] = []
    target.mkdir()
    count = 0
    for name, folders, files, fd in os.fwalk(source, onerror=errors.append):
        content: bytes | None
        count += len(folders) + len(files)
        _check_extent(Path(name).relative_to(source), count)
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
    if errors:
        raise errors[0]
    return left


def _check_extent(folder: Path, count: int) -> None:
    """Check how deep a folder of a submission is, and how many files have been seen."""
    if len(folder.parts) > _MOST_LEVELS:
        raise ValueError(f"it has more than {_MOST_LEVELS} folders in each other")
    if count > _MOST_FILES:
        raise ValueError(f"it has more than {_MOST_FILES:,} files and folders")


def _is_folder(name: str, folder: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def prepare(graded: Path, source: Path) -> None:
    """Prepare a folder whose files go to the feedback as they are.

    A page of the student there would run in the browser of whoever opens it.

    Args:
        graded: The folder. Notebooks stay, and what the exchange needs, which is added.
        source: The lab's folder, whose files stay.
    """
    for path in [each for each in graded.rglob("*") if each.is_file()]:
        place = path.relative_to(graded)
        known = path.suffix == ".ipynb" or str(place) in (_TIME, _SECRET)
        if not known and not (source / place).is_file():
            path.unlink()
    for path in (graded / _TIME, graded / _SECRET):
        try:
            path.read_text("ascii")
        except (OSError, ValueError):
            path.write_text(secrets.token_hex(64) if path.name == _SECRET else "")


def check_regular(submission: Path) -> None:
    """Check that a submission has regular files only, before they are copied to its feedback.

    Raises:
        ValueError: It has a link, a file of another kind, or too many files or folders.
    """
    count = 0
    for name, folders, files in os.walk(submission):
        count += len(folders) + len(files)
        _check_extent(Path(name).relative_to(submission), count)
        for path in (Path(name, each) for each in ("", *folders, *files)):
            if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
                raise ValueError(f"{path} is a link or no regular file: remove it, grade again")
