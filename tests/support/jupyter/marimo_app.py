"""marimo, a host of anywidget that is not Jupyter, with one page: a dashboard."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from support.jupyter.lab import front_ends_environment
from support.jupyter.voila import free_port
from support.processes import waiting

PAGE = """import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import dgkit

    dgkit.dashboard()
    return
"""


@contextmanager
def marimo(folder: Path) -> Iterator[str]:
    """Yield the address of a page of marimo that shows a dashboard."""
    script, log = folder / "page.py", folder / "marimo.log"
    script.write_text(PAGE)
    port = free_port()
    options = ["--headless", "--no-token", "--host=127.0.0.1", f"--port={port}"]
    command = [sys.executable, "-m", "marimo", "run", *options, str(script)]
    environment = front_ends_environment(folder / "home")
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}/"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(urlopen(address, timeout=5).status == 200)
        except OSError:
            return False

    try:
        waiting.until(answers, "marimo listens", timeout=90)
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
