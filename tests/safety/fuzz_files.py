# SPDX-License-Identifier: Apache-2.0
"""Files and messages that others wrote, damaged by hypothesis: only the errors that callers expect.

Sweeps of `dgkit.Fleet` (a plan and Parquet files), notebooks of students, and what a submission
sends to its grader.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from dgkit.fleet import part_files
from dgkit.fleet.row_table import schema
from dgkit.teach import codec, student_notebook

values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from(["code", "raw", "a", "QQ==", "Q"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["cells", "metadata", "source", "cell_type", "nbgrader", "grade_id", "solution",
                 "grade", "points", "dgkit", "ratios", "bytes", "map", "format", "version"]
            ),
            inner, max_size=5,
        ),
    ),
    max_leaves=20,
)  # fmt: skip
cells = st.fixed_dictionaries({"source": values, "metadata": values, "cell_type": values})
notebooks = st.one_of(values, st.fixed_dictionaries({"cells": st.lists(cells, max_size=3)}))
DAMAGE = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8
)


@cache
def _part() -> bytes:
    """Return a file of a sweep."""
    import pyarrow as pa

    rows = pa.Table.from_pylist([{}] * 3, schema=schema())
    with tempfile.TemporaryDirectory() as folder:
        files = part_files.PartFiles(Path(folder), {"plan": 1}, resume=False)
        path = files.path("pair", "write", "auto")
        files.write(path, rows)
        files.close()
        return path.read_bytes()


def _damaged(data: bytes, damage: list[tuple[float, int]]) -> bytes:
    changed = bytearray(data)
    for at, byte in damage:
        changed[int(at * len(changed))] = byte
    return bytes(changed)


def _sweep(folder: Path, plan: Any, damage: list[tuple[float, int]]) -> None:
    (folder / "_sweep.json").write_text(json.dumps(plan))
    (folder / "part-a.parquet").write_bytes(_damaged(_part(), damage))
    with contextlib.suppress(ValueError):
        part_files.read_folder(folder)
    with contextlib.suppress(ValueError):
        part_files.PartFiles(folder, {"plan": 1}, resume=True).close()


def _notebook(path: Path, notebook: Any) -> None:
    path.write_text(json.dumps(notebook))
    with contextlib.suppress(ValueError):
        metadata, found = student_notebook.load(path)
        student_notebook.ratios(metadata)
        student_notebook.solutions(found)
        student_notebook.tests(found)


def _message(value: Any, body: bytes) -> None:
    with contextlib.suppress(codec.BadMessage):
        codec.decode(value)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sent in (json.dumps([value]).encode(), body):
            theirs.sendall(struct.pack("<I", len(sent)) + sent)
            with contextlib.suppress(codec.BadMessage):
                codec.decode(codec.receive(ours, None))


def batch(number: int, examples: int) -> None:
    """Read damaged files and messages."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(value=values, notebook=notebooks, damage=DAMAGE, body=st.binary(max_size=40))
    def damage_all(value: Any, notebook: Any, damage: list[tuple[float, int]], body: bytes) -> None:
        with tempfile.TemporaryDirectory() as name:
            _sweep(Path(name), value, damage)
            _notebook(Path(name) / "x.ipynb", notebook)
        _message(value, body)

    with patch.object(os, "fsync"):  # it takes most of the time
        damage_all()
