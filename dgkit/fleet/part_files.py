# SPDX-License-Identifier: Apache-2.0
"""Folder of Parquet files, one for each pair, op and path, each written atomically."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import open_regular, read_regular, replace_file
from ..json_input import read_json
from ..wire.host_id import host_name
from .row_table import RowTable, schema

if TYPE_CHECKING:
    import pyarrow

_PLAN, _LOCK = "_sweep.json", "_lock"  # readers of data sets skip names that start with _ or .
_FORMAT, _VERSION = "dgkit fleet sweep", 1
_MAX_BYTES = 64 << 20  # of a file: a row has some 200 bytes
_DIGEST = b"dgkit rows sha256"  # key in a file's metadata
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # a file system without locks


class PartFiles:
    """Files of one sweep: one file name for each pair, op and path, so that no row occurs twice.

    Args:
        folder: The folder; created if missing.
        plan: The sweep's plan, as plain values, stored beside the files.
        resume: Whether the folder may already hold files of the same plan.

    Raises:
        ValueError: The folder holds other files or another sweep, is used by a running sweep, or
            holds files of this sweep and `resume` is false.
        OSError: The folder cannot be written.
    """

    def __init__(self, folder: Path, plan: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        document = {"format": _FORMAT, "version": _VERSION, **plan}
        path = folder / _PLAN
        if path.exists():
            _check_same(path, document)
        elif not all(map(_is_ours, folder.iterdir())):
            raise ValueError(f"{folder} is not empty and has no sweep")
        self._unlock = weakref.finalize(self, os.close, _locked(folder))
        try:
            if not path.exists():
                replace_file(path, (json.dumps(document, indent=1) + "\n").encode())
            elif not resume and self.present():
                raise ValueError(
                    f"{folder} has files of this sweep: continue it with resume=True (`--resume`), "
                    "or use another folder"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the folder for other sweeps. Idempotent."""
        self._unlock()

    def path(self, pair: str, op: str, path: str) -> Path:
        """Return the file for one pair, op and path."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "_", pair)[:80]
        digest = hashlib.sha256(pair.encode()).hexdigest()[:8]
        return self.folder / f"part-{slug}-{digest}-{op}-{path}.parquet"

    def present(self) -> list[Path]:
        """Return the files in the folder."""
        return sorted(self.folder.glob("part-*.parquet"))

    def write(self, path: Path, rows: pyarrow.Table) -> None:
        """Write a file atomically: it appears under its name once its bytes are on disk."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        digest = {_DIGEST: _digest(rows)}
        pq.write_table(rows.replace_schema_metadata(digest), sink)
        replace_file(path, sink.getvalue().to_pybytes())

    def read(self) -> RowTable:
        """Return the rows of all files."""
        return _read_parts(self.present())


def _is_ours(path: Path) -> bool:
    """Return whether a file was left by a sweep that ended before it wrote its plan."""
    return path.name == _LOCK or (path.name.startswith(".") and path.name.endswith(".part"))


def _locked(folder: Path) -> int:
    """Lock the folder; return the file descriptor whose closing unlocks it.

    Raises:
        ValueError: The folder is already locked.
    """
    lock = open_regular(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {host_name()}".encode())
    except BlockingIOError:
        owner = os.read(lock, 200).decode(errors="replace") or "another process"
        os.close(lock)
        raise ValueError(
            f"{folder} is in use by {owner}: wait for its sweep, or use another folder"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(lock)
            raise OSError(error.errno, error.strerror, str(folder / _LOCK)) from error
    return lock


def _check_same(path: Path, plan: Mapping[str, Any]) -> None:
    try:
        found = read_json(read_regular(path, _MAX_BYTES))
    except ValueError as exc:
        raise ValueError(f"{path} is not the plan of a sweep: {exc}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not the plan of a sweep")
    for name in (*plan, *found):
        if found.get(name) != plan.get(name):
            theirs = f"{name} is {found.get(name)!r} there, {plan.get(name)!r} here"
            raise ValueError(f"{path.parent} has another sweep: {theirs}")


def _read_parts(paths: list[Path]) -> RowTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = RowTable()
    for path in paths:
        try:
            content = pa.py_buffer(read_regular(path, _MAX_BYTES))
            part = pq.read_table(content, schema=schema())
            digest = (pq.read_metadata(content).metadata or {}).get(_DIGEST)
            if digest is not None and digest != _digest(part):
                raise ValueError("its rows changed since they were written")
            rows.append(part)
        except (pa.ArrowException, OSError, ValueError) as exc:
            raise ValueError(
                f"{path} is not a file of a sweep: {exc}; without it, resume=True (`--resume`) "
                "measures its rows again"
            ) from None
    return rows


def _digest(rows: pyarrow.Table) -> bytes:
    return hashlib.sha256(repr(rows.to_pylist()).encode()).hexdigest().encode()


def read_folder(folder: Path) -> RowTable:
    """Return the rows of a sweep's folder.

    Raises:
        ValueError: The folder has no sweep, or a file is broken.
    """
    if not (folder / _PLAN).is_file():
        raise ValueError(f"{folder} has no sweep ({_PLAN})")
    return _read_parts(sorted(folder.glob("part-*.parquet")))
