"""A Voila that serves one notebook as a page, for tests: its own folders, a free port."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from support.jupyter.lab import jupyter_environment
from support.processes import waiting

# An environment that has Voila besides all of this one: tests/run keeps it apart, since it brings
# extensions of JupyterLab.
HOME = os.environ.get("DGKIT_VOILA", "")


def is_installed() -> bool:
    """Whether there is a Voila."""
    return bool(HOME) or find_spec("voila") is not None


def _environment(home: Path) -> dict[str, str]:
    """The variables of the server: this Python finds Voila, and Voila its own files."""
    environment = jupyter_environment(home)
    if HOME:
        (site,) = Path(HOME).glob("lib/python3*/site-packages")
        paths = [environment.get("PYTHONPATH", ""), str(site)]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment["JUPYTER_PATH"] = str(Path(HOME) / "share/jupyter")
    return environment


@contextmanager
def voila(folder: Path, book: NotebookNode) -> Iterator[str]:
    """The address of a page that runs this notebook anew for each visitor."""
    path, log = folder / "page.ipynb", folder / "voila.log"
    nbformat.write(book, path)
    command = [
        sys.executable, "-m", "voila", "--no-browser", f"--port={_free_port()}",
        "--Voila.ip=127.0.0.1", "--show_tracebacks=True", str(path),
    ]  # fmt: skip
    environment = _environment(folder / "home")
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)

    def address() -> str:
        assert process.poll() is None, log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        return found[0] if found else ""

    try:
        yield waiting.until(address, "Voila listens", timeout=90)
    finally:
        process.send_signal(signal.SIGINT)  # it ends its kernels, too
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    """A port that is free; if somebody takes it meanwhile, Voila takes another one."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
