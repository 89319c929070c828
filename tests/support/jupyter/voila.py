# SPDX-License-Identifier: Apache-2.0
"""A Voila that serves one notebook as a page, for tests: its own folders, a free port."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from support.jupyter.lab import front_ends_environment
from support.processes import waiting


@contextmanager
def voila(folder: Path, book: NotebookNode) -> Iterator[str]:
    """Yield the address of a page that runs this notebook anew for each visitor."""
    path, log = folder / "page.ipynb", folder / "voila.log"
    nbformat.write(book, path)
    command = [
        sys.executable, "-m", "voila", "--no-browser", f"--port={free_port()}",
        "--Voila.ip=127.0.0.1", "--show_tracebacks=True", str(path),
    ]  # fmt: skip
    environment = front_ends_environment(folder / "home")
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)

    def address() -> str:
        assert process.poll() is None, log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        return found[0] if found else ""

    try:
        yield waiting.until(address, "Voila listens", timeout=90)
    finally:
        process.send_signal(signal.SIGINT)  # this also ends its kernels
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a free port; if it is taken in the meantime, Voila chooses another."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
