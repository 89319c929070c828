# SPDX-License-Identifier: Apache-2.0
"""Run notebooks without a browser, each in its own kernel, and detect processes left behind."""

from __future__ import annotations

import copy
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from support.processes.waiting import until

TUTORIALS = Path(__file__).parents[3] / "notebooks/tutorials"
WIDGET = "application/vnd.jupyter.widget-view+json"
_MARK = "DGKIT_TEST_RUN"


def notebook(*sources: str) -> Any:
    """Return a notebook with these code cells."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(metadata={"kernelspec": kernel}, cells=cells)


class _Here(AsyncKernelManager):
    """Kernel of the tests' interpreter, whatever kernels the user has installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="the tests' Python", language="python")


def _marked(mark: str) -> list[int]:
    """Return the pids of the processes that a run with this mark started, and their children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # another user's, or gone
            continue
    return found


def run(notebook: Any, folder: Path, timeout: int = 90) -> Any:
    """Run all cells in a fresh kernel and return the result; `timeout` is seconds for a cell.

    nbclient's CellExecutionError shows a cell's exception. AssertionError: a process is left
    behind.
    """
    mark = f"{_MARK}={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    client = NotebookClient(
        copy.deepcopy(notebook), timeout=timeout, kernel_manager_class=_Here,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    try:
        return client.execute(env={**os.environ, name: value})
    finally:
        until(lambda: not _marked(mark), "all that the notebook started has ended", 20.0)


def read(name: str) -> Any:
    """Return a tutorial of the repository by its name."""
    return nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)


def cell(notebook: Any, tag: str) -> Any:
    """Return the one cell with this tag."""
    (found,) = [one for one in notebook.cells if tag in one.metadata.get("tags", [])]
    return found


def solution(notebook: Any) -> str:
    """Return the code of a tutorial's solution, from the folded cell with that tag."""
    (code,) = re.findall(r"```python\n(.*?)\n```", cell(notebook, "solution").source, re.DOTALL)
    return code


def attempted(notebook: Any, *answers: str) -> Any:
    """With each answer tried, in its turn, behind the cell that checks the exercise.

    An answer goes where the reader's lines go: at the end of the exercise's cell. Its check has the
    tag `answer`, and may fail.
    """
    exercise, check = cell(notebook, "exercise"), cell(notebook, "check")
    at = notebook.cells.index(check) + 1
    for answer in reversed(answers):
        tags = {"tags": ["raises-exception", "answer"]}
        checked = nbformat.v4.new_code_cell(check.source, metadata=tags)
        tried = nbformat.v4.new_code_cell(f"{exercise.source}\n{answer}")
        notebook.cells[at:at] = [tried, checked]
    return notebook


def said(cell: Any) -> str:
    """Return the text that a cell printed, and its exception."""
    parts = [out.get("text", "") or out.get("ename", "") for out in cell.outputs]
    return "".join(parts)


def pictures(notebook: Any) -> list[Any]:
    """Return the outputs that are figures."""
    shown = [out for one in notebook.cells if one.cell_type == "code" for out in one.outputs]
    data = [out.data for out in shown if "data" in out]
    return [one for one in data if WIDGET in one and one["text/plain"].startswith("<Figure")]
